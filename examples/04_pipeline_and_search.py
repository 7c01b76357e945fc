"""
A pipeline and a search
=======================

A table, a pipeline, a search over penalty weights scored by accuracy and GDP, and a file that travels.
"""

# %%
# COMPAS: predict two-year recidivism; the sensitive attribute is age, and age is not among the features.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import sklearn
import torch
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from frhsic import GDP, FRHSICClassifier, TableEncoder, load, save
from frhsic.datasets import fetch_compas

sklearn.set_config(enable_metadata_routing=True)  # searches pass sensitive_features on, fold by fold
folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
compas = fetch_compas()
parts = train_test_split(compas.data, compas.target, compas.sensitive_features, test_size=0.3, random_state=0)
X_train, X_test, y_train, y_test, age_train, age_test = parts


# %%
# A metric that needs the sensitive attribute: the mean gap of the score between an age and overall.
def gap(y_true, score, *, sensitive_features):  # noqa: ARG001
    s = torch.tensor(sensitive_features.to_numpy(dtype=float))
    return GDP()(torch.tensor(score), s).item()


gap_scorer = make_scorer(gap, response_method="predict_proba", greater_is_better=False)
scoring = {"accuracy": "accuracy", "gap": gap_scorer.set_score_request(sensitive_features=True)}

# %%
# One search. "lam" has no unit: choose by what it does on held-out folds. (Budgets have one, and a whole
# frontier is trained in one pass: 07_choose_from_a_frontier.py.)
pipe = make_pipeline(TableEncoder(), FRHSICClassifier(epochs=20, random_state=0))
lams = [0.0, 1.0, 10.0, 30.0, 100.0]
search = GridSearchCV(
    pipe, {"frhsicclassifier__lam": lams}, scoring=scoring, cv=3, refit=False, error_score="raise"
)
search.fit(X_train, y_train, sensitive_features=age_train)
results = pd.DataFrame({"lam": lams, **{k: search.cv_results_[f"mean_test_{k}"] for k in scoring}})
results["gap"] = -results["gap"]
print(results.round(4).to_string(index=False))

# %%
# Half the gap of the unpenalised model, at the best accuracy; then the file that travels.
enough = results[results["gap"] <= 0.5 * results["gap"][0]]
chosen = float(enough.loc[enough["accuracy"].idxmax(), "lam"]) if len(enough) else lams[-1]
model = pipe.set_params(frhsicclassifier__lam=chosen).fit(X_train, y_train, sensitive_features=age_train)
save(model, folder / "compas.frhsic")
score = load(folder / "compas.frhsic").predict_proba(X_test)[:, 1]
print(f"lam = {chosen:g}: held-out accuracy {accuracy_score(y_test, score > 0.5):.3f}, "
      f"gap along age {gap(y_test, score, sensitive_features=age_test):.4f}")  # fmt: skip

# %%
# One picture: what each penalty weight costs.
figure, axis = plt.subplots(figsize=(6, 3.8), layout="constrained")
axis.plot(results["gap"], results["accuracy"], "o-", color="#0072B2")
for _, row in results.iterrows():
    place = (row["gap"], row["accuracy"])
    axis.annotate(f"{row['lam']:g}", place, xytext=(4, -12), textcoords="offset points")
axis.set_title("COMPAS; the numbers are lam", fontsize=10)
axis.set(xlabel="gap of the score along age (GDP, held-out folds)", ylabel="accuracy (held-out folds)")
figure.savefig(folder / "pipeline_and_search.png", dpi=110)
