"""
Audit a score
=============

Audit a score that is high for the young and for the old: no correlation with age, and yet.
"""

# %%
# A score with a U-shape along age, and the outcome that it predicts.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import frhsic
from frhsic.report import plot_curve, plot_profile

rng = np.random.default_rng(0)
age = rng.integers(18, 91, 2_000)
score = 1 / (1 + np.exp(-(((age - 54) / 20) ** 2 - 1.5 + rng.normal(size=2_000))))
repaid = rng.random(2_000) < score
print(f"Correlation of score and age: {np.corrcoef(score, age)[0, 1]:.3f}.\n")

# %%
# Every number at once; printed, a summary in words.
found = frhsic.audit(score, sensitive_features={"age": age}, y_true=repaid, random_state=0)
print(found)
on_age = found.attribute("age")
print(f"\nAmong those who repaid: {on_age.outcome.labels[1].gdp}")

# %%
# Where along age: the mean score, and the distance of its law from the one overall.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_curve(on_age.curve, ax=axes[0])
plot_profile(on_age.profile, ax=axes[1])
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "audit_a_score.png", dpi=110)
