"""
What the sensitive attribute tells about the target
===================================================

A dataset of the paper comes with its sensitive attribute apart from the features. One look at E[y | S]
shows what a penalty will have to work against: for Adult an inverted U, which a correlation sees in part.

The file comes from UCI, or from the folder in FRHSIC_DATA_HOME on a machine without internet.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from frhsic.datasets import fetch_adult, make_preprocessor, paper_split

adult = fetch_adult()
age, income = adult.sensitive_features["age"].to_numpy(), adult.target.to_numpy()
print(adult.DESCR.split("Known problems")[1])

# %%
# The paper's split and preprocessing: scales are learned on the training rows, categories are one-hot.

train, test = paper_split(len(income), repeat=0)
prepare = make_preprocessor(adult).fit(adult.data.iloc[train])
X_train, X_test = prepare.transform(adult.data.iloc[train]), prepare.transform(adult.data.iloc[test])
print(f"{len(train):,} rows to train, {len(test):,} to test, {X_train.shape[1]} columns")

# %%
# The picture: how many people there are of each age, and how many of them are above 50,000 dollars.

years = np.arange(17, 76)
counts = np.array([(age == year).sum() for year in years])
shares = np.array([income[age == year].mean() for year in years])
band = 1.96 * np.sqrt(shares * (1 - shares) / counts)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.bar(years, counts, width=1.0, color="#2b5c8a")
left.set(xlabel="age", ylabel="people", title="S")
right.fill_between(years, shares - band, shares + band, alpha=0.25, color="#c8642b", linewidth=0)
right.plot(years, shares, color="#c8642b")
right.axhline(income.mean(), color="0.5", linestyle="--", linewidth=0.9)
right.set(xlabel="age", ylabel="share above 50,000 dollars", title="E[y | S], 95 % band; dashed: all ages")
correlation = np.corrcoef(age, income)[0, 1]
print(
    f"correlation {correlation:.2f}; the conditional share runs from {shares.min():.2f} to {shares.max():.2f}"
)
