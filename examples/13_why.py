"""
Why does my score depend on age?
================================

Three questions that follow a gap: what remains at equal income, which columns stand for age, and which
inputs of the model carry the gap.
"""

# %%
# A lender's score rests on income, savings and the years at one address. Older people earn and save more,
# and have moved less often.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

from frhsic import audit
from frhsic.inference import carriers, proxies
from frhsic.report import plot_adjusted, plot_carriers
from frhsic.selection import retrain_without

rng = np.random.default_rng(0)
n = 4_000
age = pd.Series(rng.integers(20, 75, n), name="age")
older = (age - 47) / 15
X = pd.DataFrame(
    {
        "income": 0.6 * older + rng.normal(size=n),
        "savings": 0.4 * older + rng.normal(size=n),
        "years at address": np.exp(0.5 * older + 0.7 * rng.normal(size=n)),
    }
)
repaid = X["income"] + 0.5 * X["savings"] + 0.2 * X["years at address"] + rng.normal(size=n)
model = LinearRegression().fit(X, repaid)
score = pd.Series(model.predict(X), name="score")

# %%
# The audit says what remains at equal income and savings (here all of it runs through the years at one
# address), and splits the gap between the inputs. Coefficient times input is what an input adds to the score
# of a linear model.
contributions = X * model.coef_
found = audit(
    score,
    sensitive_features=age,
    given=X[["income", "savings"]],
    contributions=contributions,
    random_state=0,
)
why = found.attribute("age")
print(why.explained)
print(why.carried)

# %%
# Proxies: how well each column predicts age, alone and beside the others.
print(proxies(X, age, random_state=0).to_frame()[["column", "hsic", "r2", "lost"]].round(2))

# %%
# A share is no remedy. Trained again without the leading input, the model may learn the same from others.
first = carriers(contributions, age, random_state=0).inputs[:1]
print(retrain_without(model, X, repaid, sensitive_features=age, inputs=first, random_state=0))

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
plot_adjusted(why.explained, ax=left)
plot_carriers(why.carried, ax=right)
figure.savefig(Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "why.png", dpi=110)
