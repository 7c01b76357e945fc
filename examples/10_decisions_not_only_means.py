"""
Decisions, not only means
=========================

A score whose mean is the same at every age can still decide unequally. The gap of the score sees it.
"""

# %%
# The mean of this score is one half at every age. Its spread grows with age: the old get more extreme scores.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import frhsic
from frhsic.dependence import ScoreGap
from frhsic.inference import confidence_interval, equivalence_test, region_test
from frhsic.report import plot_curve, plot_decision_gaps

rng = np.random.default_rng(0)
age = rng.integers(18, 78, 4_000)
score = 1 / (1 + np.exp(-rng.normal(size=4_000) * np.exp((age - 48) / 30)))

# %%
# Means see nothing. The distance between the scores at an age and all scores, in the unit of the score, does;
# so do decisions at a threshold of 0.8.
found = frhsic.audit(score, sensitive_features={"age": age}, thresholds=[0.8], random_state=0)
on_age = found.attribute("age")
for name in ("gdp", "gap", "gap_worst"):
    print(on_age.measures[name])
print(on_age.decisions[0].gap)

# %%
# A question that was asked before anybody looked: do those of 60 and older get a mean score below the others?
# And do they pass the threshold more rarely?
print(region_test(score, age >= 60, side="below", random_state=0))
print(region_test((score > 0.8).astype(float), age >= 60, side="below", random_state=0))

# %%
# Is the gap below 20 points on average, and at every cut-off?
for cutoff in (None, "worst"):
    print(equivalence_test(score, age, tolerance=0.2, dependence=ScoreGap(cutoff=cutoff), random_state=0))
print(confidence_interval(score, age, dependence=ScoreGap(cutoff=0.5), random_state=0))

# %%
# The gap of decisions at every cut-off, and the share of scores above 0.8 along age.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_decision_gaps(on_age.cutoffs, thresholds=[0.8], ax=axes[0])
plot_curve(on_age.decisions[0].curve, ylabel="share above 0.8", ax=axes[1])
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "decisions_not_only_means.png", dpi=110)
