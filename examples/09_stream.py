"""
A table that need not fit in memory
===================================

A table that need not fit in memory: record batches in random order, one call of partial_fit for each.
"""

# %%
# Eight Parquet files, the rows of each sorted by age: the worst order to train in.
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from frhsic import FRHSICClassifier
from frhsic.datasets import make_u_shaped
from frhsic.sources import open_source, shuffle, write_table

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / "rows"
folder.mkdir(exist_ok=True)
for j in range(8):
    task = make_u_shaped(2_500, random_state=j)
    age = 18 + 72 * task.sensitive_features[:, 0]
    order = np.argsort(age)
    columns = {"a": task.data[:, 0], "b": task.data[:, 1], "age": age, "y": task.target}
    write_table({name: column[order] for name, column in columns.items()}, folder / f"{j}.parquet")

# %%
# Only the columns that are named are read, a few hundred rows of some of the files at a time. A buffer of
# rows is mixed and handed out in batches. Scales come from the first batch.
source = open_source(str(folder / "*.parquet"), columns=["a", "b", "age", "y"], batch_rows=500)
rng = np.random.default_rng(0)
models = {lam: FRHSICClassifier(lam=lam, random_state=0) for lam in (0.0, 3.0, 30.0)}
for _ in range(6):  # passes over all files
    for batch in shuffle(source, batch_rows=2_000, buffer_rows=8_000, random_state=rng):
        X, y, age = batch.select(["a", "b"]), batch["y"], batch.select(["age"])
        for model in models.values():
            model.partial_fit(X, y, classes=[0, 1], sensitive_features=age)

# %%
# The mean score along age, on rows that no model has seen.
test = make_u_shaped(20_000, random_state=99)
age = 18 + 72 * test.sensitive_features[:, 0]
at = np.linspace(19, 89, 71)
weights = np.exp(-0.5 * ((at[:, None] - age) / 2.0) ** 2)
figure, axis = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
for lam, model in models.items():
    score = model.predict_proba(test.data)[:, 1]
    right = np.mean((score > 0.5) == test.target)
    label = f"lam = {lam:g}: accuracy {right:.3f} after {model.n_iter_} batches"
    print(label)
    axis.plot(at, weights @ score / weights.sum(axis=1), label=label)
axis.set(xlabel="age", ylabel="mean score at this age (held-out rows)", ylim=(0, 1))
axis.legend(fontsize=8, loc="upper center")
figure.savefig(folder.parent / "stream.png", dpi=110)
