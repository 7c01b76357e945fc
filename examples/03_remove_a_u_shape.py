"""
Remove a U-shape
================

A U-shaped effect of age on a score: a linear penalty leaves it, FRHSIC takes it out, at a price.
"""

# %%
# The first feature is high for the young and the old. A classifier picks that up. Its correlation with age is
# zero, so a penalty that is linear in age has nothing to lower.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from frhsic import HSIC, FRHSICClassifier, Penalty
from frhsic.datasets import make_u_shaped
from frhsic.kernels import Linear

train = make_u_shaped(4_000, random_state=0)
test = make_u_shaped(20_000, random_state=1)
age = 18 + 72 * test.sensitive_features[:, 0]

correlation = HSIC(Linear(), Linear(), estimator="unbiased", normalized=True)  # squared, debiased
models = {
    "no penalty": FRHSICClassifier(lam=0),
    "correlation as penalty": FRHSICClassifier(lam=30, penalty=Penalty(correlation, on="prediction")),
    "FRHSIC, lam = 3": FRHSICClassifier(lam=3),
    "FRHSIC, lam = 30": FRHSICClassifier(lam=30),
}


# %%
# The conditional mean of the score along age, on rows that no model has seen.
def conditional_mean(score, at, bandwidth=2.0):
    weights = np.exp(-0.5 * ((at[:, None] - age) / bandwidth) ** 2)
    return weights @ score / weights.sum(axis=1)


at = np.linspace(19, 89, 71)
curves, labels = {}, {}
for name, model in models.items():
    model.set_params(epochs=60, random_state=0)
    model.fit(train.data, train.target, sensitive_features=train.sensitive_features)
    curves[name] = conditional_mean(model.predict_proba(test.data)[:, 1], at)
    left = np.ptp(curves[name]) / np.ptp(curves["no penalty"])
    labels[name] = f"{name}: {left:.0%} of the range, accuracy {model.score(test.data, test.target):.3f}"
    print(labels[name])

# %%
# One picture.
figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
for (name, curve), colour in zip(curves.items(), ("black", "#D55E00", "#56B4E9", "#0072B2"), strict=True):
    axis.plot(at, curve, color=colour, linewidth=2, label=labels[name])
axis.set(xlabel="age", ylabel="mean score at this age (held-out rows)", ylim=(0, 1))
axis.legend(fontsize=8, loc="upper center")
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "remove_a_u_shape.png", dpi=110)
