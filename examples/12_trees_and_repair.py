"""
Trees, networks and repair
==========================

Four ways to a smaller gap along age, and what each costs: the same rows, the same judge.
"""

# %%
# Young and old have another feature than the middle-aged, and a fifth of the rows is kept for judging.
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from frhsic import FRHSICClassifier
from frhsic.boosting import FRHSICBoostingClassifier
from frhsic.datasets import make_u_shaped
from frhsic.metrics import score_gap
from frhsic.repair import ScoreRepair

torch.set_num_threads(1)
warnings.simplefilter("ignore", ConvergenceWarning)  # what each model kept is in the picture
task, new = make_u_shaped(6_000, random_state=0), make_u_shaped(6_000, random_state=1)
X, y, age = task.data, task.target, task.sensitive_features.ravel()
X_new, y_new, age_new = new.data, new.target, new.sensitive_features.ravel()


def judge(score):
    """Return the gap of a score along age, and the accuracy of its decisions, on new rows."""
    gap = score_gap(None, score, sensitive_features=age_new)
    return gap, np.mean((score > 0.5) == y_new)


# %%
# LightGBM, XGBoost and a network are trained within limits of the gap. ``booster_`` is an ordinary model of
# its library.
limits = (0.15, 0.1, 0.06, 0.03)
curves = {}
for backend in ("lightgbm", "xgboost"):
    options = {"backend": backend, "n_estimators": 100, "random_state": 0, "backend_params": {"max_depth": 3}}
    models = [FRHSICBoostingClassifier(**options, limit={"gap": limit}) for limit in limits]
    models = [model.fit(X, y, sensitive_features=age) for model in models]
    curves[backend] = [judge(model.predict_proba(X_new)[:, 1]) for model in models]
print(models[-1].reached_[0])
networks = [FRHSICClassifier(limit={"gap": limit}, epochs=20, random_state=0) for limit in limits]
networks = [model.fit(X, y, sensitive_features=age) for model in networks]
curves["network"] = [judge(model.predict_proba(X_new)[:, 1]) for model in networks]

# %%
# Repair leaves the model as it is and moves its scores. It is fitted on rows that the model has not seen, and
# it needs the age of everybody whom it scores.
plain = FRHSICBoostingClassifier(lam=0, n_estimators=100, random_state=0, backend_params={"max_depth": 3})
plain.fit(X[:3_000], y[:3_000])
seen, score = plain.predict_proba(X[3_000:])[:, 1], plain.predict_proba(X_new)[:, 1]
curves["repair"] = []
for amount in (0.25, 0.5, 0.75, 1.0):
    repair = ScoreRepair(amount, random_state=0).fit(seen, age[3_000:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few scores are beyond those of the fit
        curves["repair"].append(judge(repair.transform(score, age_new)))
print(repair)

# %%
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
for (name, points), marker in zip(curves.items(), "os^D", strict=True):
    axes.plot(*zip(*sorted(points), strict=True), marker=marker, label=name)
axes.set(xlabel="gap of the score along age (less is to the left)", ylabel="accuracy", xlim=(0, None))
axes.legend()
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "trees_and_repair.png", dpi=110)
