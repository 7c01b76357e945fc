"""
A U-shape is not nothing
========================

A score that is high for the young and the old: what each measure says about its dependence on age.
"""

# %%
# Correlation, and any penalty that is linear in age, sees nothing in a U-shape. The measures of frhsic do.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import frhsic
from frhsic.kernels import Linear

rng = np.random.default_rng(0)
age = rng.uniform(18, 90, 2_000)
middle = (age - 54) / 36
scores = {
    "no effect": 0.5 + 0.1 * rng.standard_normal(2_000),
    "rising": 0.5 + 0.25 * middle + 0.1 * rng.standard_normal(2_000),
    "U-shaped": 0.3 + 0.5 * middle**2 + 0.1 * rng.standard_normal(2_000),
    "spread only": 0.5 + 0.02 * rng.standard_normal(2_000) * (1 + 9 * middle**2),
}

# %%
# Every measure is called the same way. "Debiased" estimates are centred at zero when there is no dependence.
measures = {
    "linear HSIC": frhsic.HSIC(Linear(), Linear(), normalized=True),
    "HSIC": frhsic.HSIC(estimator="unbiased", normalized=True),
    "distance corr.": frhsic.DistanceCovariance(estimator="unbiased", normalized=True),
    "GDP": frhsic.GDP(),
}
s = torch.tensor(age)
table = {name: {m: f(torch.tensor(y), s).item() for m, f in measures.items()} for name, y in scores.items()}
for name, row in table.items():
    print(f"{name:12s}", "  ".join(f"{m} {value:+.3f}" for m, value in row.items()))

# %%
# One picture: the scores along age, and under each what the measures say.
figure, axes = plt.subplots(1, 4, figsize=(12, 3.8), sharey=True, layout="constrained")
for axis, (name, y) in zip(axes, scores.items(), strict=True):
    axis.plot(age, y, ".", markersize=2, color="#0072B2", alpha=0.4)
    axis.set_title(name)
    says = "\n".join(f"{m}: {value:.3f}" for m, value in table[name].items())
    axis.set_xlabel(f"age\n\n{says}")
    axis.set_ylim(-0.1, 1.1)
axes[0].set_ylabel("score")
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "a_u_shape_is_not_nothing.png", dpi=110)
