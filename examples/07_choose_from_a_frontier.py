"""
Choose from a frontier
======================

One model is no choice: five in one pass, what each costs, one of them chosen, and judged on other rows.
"""

# %%
# Communities and Crime: predict violent crime; the sensitive attribute is a share of the population. We have
# rows to train on, rows to choose on (FrontierSearch sets them aside), and rows that take no part in either.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import frhsic
from frhsic import FRHSICRegressor, TableEncoder
from frhsic.datasets import fetch_crime
from frhsic.report import plot_frontier
from frhsic.selection import FrontierSearch, knee

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
crime = fetch_crime()
parts = train_test_split(crime.data, crime.target, crime.sensitive_features, test_size=0.3, random_state=0)
X, X_other, y, y_other, s, s_other = parts

# %%
# A budget is the share of the dependence of an unconstrained model that may be left. All are trained at once.
pipe = make_pipeline(TableEncoder(), FRHSICRegressor(epochs=30, random_state=0))
search = FrontierSearch(pipe, budgets=[0.5, 0.2, 0.1, 0.05], rule=knee, validation=0.3, random_state=0)
search.fit(X, y, sensitive_features=s)
shown = ["budget", "relative_dependence", "performance", "gdp", "gdp_low", "gdp_high", "r2_boosted"]
print(search.results_[shown].round(3).to_string(index=False))

# %%
# What was chosen looks better on the rows it was chosen on than it is: the audit is on others.
chosen = search.points_[search.best_index_]
found = frhsic.audit(search.predict(X_other), sensitive_features=s_other, y_true=y_other, random_state=0)
gdp = found.attributes[0].measures["gdp"]
print(f"\nChosen: {chosen}")
print(f"On rows that took no part: R^2 {search.score(X_other, y_other):.3f}. {gdp}")
frhsic.save(search.best_estimator_, folder / "crime.frhsic")

# %%
# One picture; the interval on the other rows beside it.
figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
axes.errorbar(
    gdp.estimate,
    search.score(X_other, y_other),
    xerr=[[gdp.estimate - gdp.low], [gdp.high - gdp.estimate]],
    fmt="D",
    color="#D55E00",
    capsize=3,
    label="chosen, on other rows",
)
plot_frontier(
    search.points_, chosen=search.best_index_, dependence="GDP of the prediction", performance="R²", ax=axes
)
figure.savefig(folder / "choose_from_a_frontier.png", dpi=110)
