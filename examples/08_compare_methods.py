"""
Compare methods
===============

Which method keeps more at the same dependence? Each with the same penalty weights, splits and rows.
"""

# %%
# A task in which the features carry the sensitive attribute, and three published penalties. Unfair has none.
import numpy as np

from frhsic.baselines import FRHSIC, MMD, REG_GDP, UNFAIR
from frhsic.datasets import make_scm, paper_split
from frhsic.estimators import fit_path
from frhsic.metrics import generalized_demographic_parity
from frhsic.selection import Point, naup

LAMS = [0.1, 1.0, 10.0, 100.0]
task = make_scm(1_500, random_state=0)
X, y, s = (np.asarray(part) for part in (task.data, task.target, task.sensitive_features))


# %%
# A model is a point: what it is worth, and how much its probabilities depend on S. What is picked on one half
# of the held-out rows is valued on the other; the area runs from a constant prediction to Unfair.
def points(models, rows):
    found = []
    for model in models:
        p = model.predict_proba(X[rows])[:, 1]
        gdp = generalized_demographic_parity(y[rows], p, sensitive_features=s[rows])
        found.append(Point(model.lam, np.mean((p > 0.5) == y[rows]), gdp))
    return found


def area(method, repeat):
    train, held_out = paper_split(len(y), repeat=repeat)
    picked, valued = held_out[::2], held_out[1::2]
    path = []
    for one, lams in ((UNFAIR, [0.0]), (method, LAMS)):
        model = one.classifier(epochs=15, random_state=repeat)
        path += fit_path(model, X[train], y[train], lams=lams, sensitive_features=s[train])
    (unfair, *sweep), (best, *judged) = points(path, picked), points(path, valued)
    base = max(np.mean(y[valued]), 1 - np.mean(y[valued]))
    return naup(sweep, unfair, limits=(base, best.performance), judged=(judged, best))


# %%
# Three splits say little: look at the range before the mean. The reproduction has five, on six datasets.
for method in (FRHSIC, REG_GDP, MMD):
    areas = [area(method, repeat) for repeat in range(3)]
    print(f"{method.name:12s} nAUP {np.mean(areas):.2f}, {min(areas):.2f} to {max(areas):.2f} over splits")
