"""The paper's protocol on real data: splits, scales and metrics, as published."""

import csv
import math
import os
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial import cKDTree
from scipy.special import digamma
from sklearn.utils import Bunch

from frhsic import GDP, HSIC, FRHSICClassifier, FRHSICRegressor, Penalty, Training
from frhsic.datasets import (
    fetch_acs_income,
    fetch_adult,
    fetch_compas,
    fetch_crime,
    fetch_meps,
    make_preprocessor,
    paper_split,
)

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# sigma_Z by the median of each batch in epochs divisible by 20, then held; X and S in [0, 1]; the last
# batch of an epoch however short.
PUBLISHED = Training(every=20, last_batch="keep", scaling="minmax")
SEEDS = (42, 43, 44, 45, 46)


def published_gdp(logits: Array, s: Array) -> float:
    """Return the scripts' GDP: on logits, mean over 50 grid points, bandwidth 0.1 on S in [0, 1]."""
    measure = GDP(0.1, weighting="grid", n_grid=50, range_s=1.0)
    return measure(torch.from_numpy(logits), torch.from_numpy(s)).item()


def published_mi(z: Array, s: Array, k: int = 5) -> float:
    """Return the scripts' mutual information: Kraskov et al. on 2 to 5 principal components, cut at zero.

    Components up to 95 % of the variance, in their own units beside S; rows at the distance of the k-th
    neighbour are counted, so that ties (ages are whole years) push it towards zero.
    """
    centred = z - z.mean(axis=0)
    _, spread, directions = np.linalg.svd(centred, full_matrices=False)
    share = np.cumsum(spread**2) / max(np.sum(spread**2), 1e-300)
    kept = max(2, min(5, int(np.searchsorted(share, 0.95)) + 1))
    x, y = centred @ directions[:kept].T, s[:, None]
    joint = np.hstack([x, y])
    reach = cKDTree(joint).query(joint, k=k + 1, p=np.inf)[0][:, -1] + 1e-15
    near = [
        cKDTree(one).query_ball_point(one, reach, p=np.inf, return_length=True).astype(float)
        for one in (x, y)
    ]
    return max(0.0, float(digamma(k) + digamma(len(s)) - np.mean(digamma(near[0]) + digamma(near[1]))))


# Trained once, judged as often as one likes: what the judging benchmarks (bounds, selection) share.

CACHE = Path(__file__).parent / ".cache"
# What training depends on. A cached model carries the commit of these, so that a change of the judging half
# alone does not make it look stale.
_TRAINING_SOURCES = (
    *("data", "datasets", "dependence", "engine", "estimators", "kernels", "numerics"),
    "penalty.py",
)


@dataclass(frozen=True, eq=False)
class Data:
    """A dataset before it is split: the frame with its description, the target and S in its own units."""

    name: str
    bunch: Bunch
    y: Array
    s: Array

    @property
    def regression(self) -> bool:
        """Whether the target is a number."""
        return bool(self.bunch.task == "regression")

    @property
    def s_unit(self) -> Array:
        """S in [0, 1] on all rows, as three of the published scripts have it."""
        return (self.s - self.s.min()) / (self.s.max() - self.s.min())


@cache
def dataset(name: str) -> Data:
    """Return a dataset under the published choice of rows and columns.

    "adult" (rows with "?" kept), "acs_income" (20,000 rows of California), "meps" (the columns that the paper
    names, rows with a missing answer dropped), "compas", all with S = age; "crime" with S = racepctblack, as
    the text has it, "crime-householdsize" as the scripts have it.
    """
    if name == "adult":
        bunch, column = fetch_adult(missing="category"), "age"
    elif name == "compas":
        bunch, column = fetch_compas(), "age"
    elif name == "acs_income":
        bunch, column = fetch_acs_income(subsample=20_000), "AGEP"
    elif name == "meps":
        bunch, column = fetch_meps(features="paper", missing="drop"), "AGE"
    else:
        column = name.partition("-")[2] or "racepctblack"
        bunch = fetch_crime(sensitive=column)
    s = bunch.sensitive_features[column].to_numpy(np.float64)
    return Data(name, bunch, np.asarray(bunch.target, dtype=np.float64), s)


@dataclass(frozen=True, eq=False)
class Split:
    """One of the paper's random 80/20 splits; x and s are in [0, 1] on the training rows."""

    x: Array
    y: NDArray[Any]
    s: Array
    x_test: Array
    y_test: NDArray[Any]
    s_test: Array
    regression: bool


def split_of(name: str, repeat: int, *, on_all: bool = False) -> Split:
    """Return a split of a dataset, scaled on its training rows or, as no one should, on all."""
    data = dataset(name)
    train, test = paper_split(len(data.y), repeat=repeat)
    seen = np.arange(len(data.y)) if on_all else train
    preprocessor = make_preprocessor(data.bunch).fit(data.bunch.data.iloc[seen])
    x, x_test = (preprocessor.transform(data.bunch.data.iloc[rows]) for rows in (train, test))
    low, high = data.s[seen].min(), data.s[seen].max()
    s = (data.s - low) / (high - low)
    y: NDArray[Any] = data.y if data.regression else data.y.astype(np.int64)
    return Split(x, y[train], s[train], x_test, y[test], s[test], data.regression)


def output_of(model: Any, x: Array, *, regression: bool) -> Array:
    """Return the logits of some rows, or the predictions of a regression."""
    output: Array = model.predict(x) if regression else model.decision_function(x)
    return output


def score_of(output: Array, *, regression: bool) -> Array:
    """Return the probabilities of logits, or the predictions of a regression as they are."""
    return output if regression else 1.0 / (1.0 + np.exp(-output))


def three_parts(n: int, repeat: int) -> tuple[Rows, Rows, Rows]:
    """Return the rows of the 70/15/15 split of the published selection script: train, validation, test."""
    order = np.random.RandomState(SEEDS[repeat]).permutation(n)
    train, validation = int(0.7 * n), int(0.15 * n)
    return order[:train], order[train : train + validation], order[train + validation :]


def small_parts(n: int, most: int = 1_500) -> tuple[Rows, Rows, Rows]:
    """Return the rows of the published bound script: its 1,500, and their 80/20 split."""
    rng = np.random.RandomState(SEEDS[0])
    chosen = rng.choice(n, most, replace=False) if n > most else np.arange(n)
    order = rng.permutation(len(chosen))
    cut = int(0.8 * len(chosen))
    return chosen, chosen[order[:cut]], chosen[order[cut:]]


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows as a trained model sees them; ``s`` in its own units, ``output`` a logit or a prediction."""

    z: Array
    output: Array
    s: Array
    y: Array


@dataclass(frozen=True, eq=False)
class Seen:
    """What is kept of a trained model: its view of the rows asked for, and what made it."""

    parts: dict[str, Part]
    low: float  # of s on the training rows
    high: float
    commit: str
    seconds: float

    def s_unit(self, part: str) -> Array:
        """Return s of a part, in [0, 1] on the training rows."""
        return (self.parts[part].s - self.low) / (self.high - self.low)


def see(
    data: Data,
    train: Rows,
    asked: dict[str, Rows],
    *,
    protocol: str,
    repeat: int,
    lam: float,
    epochs: int,
    retrain: bool = False,
) -> Seen:
    """Train FRHSIC as published and return its view of the rows asked for, from the cache if it is there.

    Scales are learned on the training rows only, where the scripts of these experiments use all rows.
    """
    path = CACHE / f"{protocol}-{data.name}-{repeat}-lam{lam:g}-epochs{epochs}.npz"
    if path.exists() and not retrain:
        with np.load(path) as kept:
            return Seen(
                {
                    name: Part(*(kept[f"{name}.{field}"] for field in ("z", "output", "s", "y")))
                    for name in asked
                },
                low=float(kept["low"]),
                high=float(kept["high"]),
                commit=str(kept["commit"]),
                seconds=float(kept["seconds"]),
            )
    preprocessor = make_preprocessor(data.bunch)
    x = preprocessor.fit_transform(data.bunch.data.iloc[train])
    kind = FRHSICRegressor if data.regression else FRHSICClassifier
    model = kind(
        lam=lam, penalty=Penalty(HSIC()), epochs=epochs, random_state=SEEDS[repeat], training=PUBLISHED
    )
    y = data.y if data.regression else data.y.astype(np.int64)
    start = time.perf_counter()
    model.fit(x, y[train], sensitive_features=data.s[train])
    seconds = time.perf_counter() - start
    parts = {}
    for name, rows in asked.items():
        x = preprocessor.transform(data.bunch.data.iloc[rows])
        output = output_of(model, x, regression=data.regression)
        parts[name] = Part(model.transform(x), output, data.s[rows], data.y[rows])
    low, high = data.s[train].min(), data.s[train].max()
    seen = Seen(parts, float(low), float(high), training_commit(), seconds)
    CACHE.mkdir(exist_ok=True)
    flat = {f"{name}.{field}": value for name, part in parts.items() for field, value in vars(part).items()}
    unfinished = path.with_suffix(".part.npz")  # a killed run must not leave half a file under the name
    np.savez_compressed(unfinished, low=low, high=high, commit=np.array(seen.commit), seconds=seconds, **flat)
    unfinished.replace(path)
    return seen


def training_commit() -> str:
    """Return the commit at hand, marked if what training depends on differs from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    sources = [f"../src/frhsic/{name}" for name in _TRAINING_SOURCES]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", *sources], capture_output=True, text=True, check=False
    )
    return commit.stdout.strip() + ("+changes" if changed.stdout.strip() else "")


def published(name: str) -> list[dict[str, str]]:
    """Return the rows of a published table, beside the data home; none, with a message, where it is not."""
    path = Path(os.environ.get("FRHSIC_DATA_HOME", ".")).parent / "published" / f"{name}.csv"
    if not path.exists():
        print(f"published/{path.name} is not beside FRHSIC_DATA_HOME: no published figures in the tables.")
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def published_law(n: int, of_z: tuple[float, float], of_s: tuple[float, float]) -> Any:
    """Return the gamma law that the published scripts compare n HSIC_b with; not that of the null moments.

    From the sums over i != j of k and of k^2. Its mean is near E k E l and does not vanish with n; the null
    mean of n HSIC_b is about (1 - E k)(1 - E l).
    """
    fourth, sixth = (math.prod(n - j for j in range(count)) for count in (4, 6))
    mean = of_z[0] * of_s[0] / fourth
    variance = 2.0 * of_z[1] * of_s[1] / sixth
    return stats.gamma(mean**2 / variance, scale=variance / mean)
