"""The paper's protocol on real data: splits, scales and metrics, as published."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from frhsic import GDP, HSIC, FRHSICClassifier, Penalty, Training
from frhsic.datasets import fetch_adult, make_preprocessor, paper_split

Array = NDArray[np.float64]

# sigma_Z by the median of each batch in epochs divisible by 20, then held; X and S in [0, 1].
PUBLISHED = Training(every=20, scaling="minmax")
SEEDS = (42, 43, 44, 45, 46)


@dataclass(frozen=True)
class Split:
    """One of the paper's splits; s is in [0, 1] on the training rows."""

    x: Array
    y: NDArray[Any]
    s: Array
    x_test: Array
    y_test: NDArray[Any]
    s_test: Array


def adult(repeat: int) -> Split:
    """Return a split of Adult as published: n = 32,561 with "?" as a category, d = 107, S = age."""
    bunch = fetch_adult(missing="category")
    train, test = paper_split(len(bunch.target), repeat=repeat)
    preprocessor = make_preprocessor(bunch)
    x = preprocessor.fit_transform(bunch.data.iloc[train])
    x_test = preprocessor.transform(bunch.data.iloc[test])
    y = np.asarray(bunch.target)
    s = bunch.sensitive_features["age"].to_numpy(np.float64)
    low, high = s[train].min(), s[train].max()
    s = (s - low) / (high - low)
    return Split(x, y[train], s[train], x_test, y[test], s[test])


def published_gdp(logits: Array, s: Array) -> float:
    """Return the scripts' GDP: on logits, mean over 50 grid points, bandwidth 0.1 on S in [0, 1]."""
    measure = GDP(0.1, weighting="grid", n_grid=50, range_s=1.0)
    return measure(torch.from_numpy(logits), torch.from_numpy(s)).item()


def frhsic_published(lam: float, seed: int, epochs: int = 200) -> FRHSICClassifier:
    """Return FRHSIC with the published settings (Unfair at lam = 0)."""
    return FRHSICClassifier(
        lam=lam, penalty=Penalty(HSIC()), epochs=epochs, random_state=seed, training=PUBLISHED
    )
