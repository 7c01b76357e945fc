"""
How certain is it?
==================

A score and age: is there dependence, how much, where, and how sure can one be?
"""

# %%
# A score that rises a little with age up to 40, and is flat after; 3,000 people. Its maker did not
# use these rows.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from frhsic import GDP
from frhsic.inference import (
    conditional_curve,
    confidence_interval,
    equivalence_test,
    independence_test,
)
from frhsic.inference.bounds import certify

rng = np.random.default_rng(0)
age = rng.integers(18, 91, 3_000)
score = 0.5 + 0.004 * np.minimum(age - 40, 0) + 0.12 * rng.normal(size=3_000)
s = {"age": age}

# %%
# Is there dependence? How many points of the score, and how many by chance? Is it below three points?
print(independence_test(score, s, random_state=0))
print(confidence_interval(score, s, dependence=GDP(), random_state=0))
for points in (0.03, 0.01):
    print(equivalence_test(score, s, tolerance=points, dependence=GDP(), random_state=0))

# %%
# What can be promised at this n, without asymptotics, and to whom?
certificate = certify(score, s, random_state=0)
print(certificate.bound("population"))
print(certificate.bound("worst_head"))

# %%
# Where along age: the mean score at each age, with a band that covers the whole curve at once.
curve = conditional_curve(score, s, random_state=0)
print(curve)
figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
axis.fill_between(
    curve.points, curve.low, curve.high, color="#56B4E9", alpha=0.35, label="95 % band, whole curve"
)
axis.plot(curve.points, curve.mean, color="#0072B2", linewidth=2, label="mean score at each age")
axis.axhline(curve.overall, color="black", linestyle="--", linewidth=1, label="overall mean")
axis.set(xlabel="age", ylabel="score")
axis.legend(fontsize=8, loc="lower right")
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "how_sure.png", dpi=110)
