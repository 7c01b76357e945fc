"""
A limit in points
=================

"At most 3 points between the scores at one age and all scores": a model is trained to it, then judged.
"""

# %%
# Young and old have another feature than the middle-aged. No correlation sees it; a model uses it.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from frhsic import FRHSICClassifier
from frhsic.datasets import make_u_shaped
from frhsic.dependence import RankGap, ScoreGap
from frhsic.inference import confidence_interval, decision_gaps
from frhsic.report import plot_decision_gaps

torch.set_num_threads(1)
task, new = make_u_shaped(5_000, random_state=0), make_u_shaped(5_000, random_state=1)
X, y, age = task.data, task.target, task.sensitive_features

# %%
# A fifth of the rows steers: it is not trained on, and after every epoch the gap is measured there. The
# weight of the penalty follows it.
free = FRHSICClassifier(lam=0, epochs=40, random_state=0).fit(X, y)
limited = FRHSICClassifier(limit={"gap": 0.03, "gap_at": {0.5: 0.06}}, epochs=40, random_state=0)
limited.fit(X, y, sensitive_features=age)
print(*limited.reached_, sep="\n")

# %%
# On rows that neither training nor the limit has seen. The rank gap is the same on every scale of the score:
# it falls, so the limit was not met by shrinking alone.
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for axis, (name, model) in zip(axes, {"no limit": free, "gap at most 0.03": limited}.items(), strict=True):
    score = model.predict_proba(new.data)[:, 1]
    print(f"{name}: accuracy {model.score(new.data, new.target):.3f}")
    for measure in (ScoreGap(), RankGap()):
        print(confidence_interval(score, new.sensitive_features, dependence=measure, random_state=0))
    found = decision_gaps(score, new.sensitive_features)
    plot_decision_gaps(found, thresholds=[0.5], ax=axis)
    axis.set_xlabel(f"cut-off, {name}")
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "a_limit_in_points.png", dpi=110)
