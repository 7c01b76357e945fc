"""
Audit counts, not rows
======================

Each night a small table of counts is made where the rows are. Tables add up, and the audit needs nothing
else.
"""

# %%
# The cells are fixed once: a cell for each age, 256 ranges of the score, and a border at the bank's
# threshold. From then on a night is a table of whole numbers, whatever order its rows came in.
import matplotlib.pyplot as plt
import numpy as np

from frhsic import audit
from frhsic.dependence import RankGap, ScoreGap
from frhsic.inference import confidence_interval
from frhsic.report import plot
from frhsic.table import Axis, ScoreTable

rng = np.random.default_rng(0)


def night(n=4_000):
    age = rng.integers(18, 80, n)
    score = 1 / (1 + np.exp(-((age - 49) / 60 + rng.normal(size=n))))
    return score, age


axes = {
    "score_axis": Axis.of_borders(np.linspace(0, 1, 257), "score", at=[0.6]),
    "s_axes": [Axis.of_values(np.arange(18, 80), "age")],
}
tables = [ScoreTable.from_rows(*night(), **axes) for _ in range(30)]
print(tables[0], tables[0].digest[:16], "...")

# %%
# The sum of thirty nights is the table of all rows: the gap of one night is uncertain, that of a month is
# not. The rank gap is the same for every scale of the score.
total = sum(tables[1:], tables[0])
for nights in (tables[0], sum(tables[1:7], tables[0]), total):
    found = confidence_interval(nights, dependence=RankGap())
    print(f"{nights.n:>7,} rows: {found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]")

# %%
# The whole audit follows from the same table.
month = audit(total, thresholds=[0.6], random_state=0)
print(month.sentences()[0])

# %%
# The gap of decisions at every cut-off, with a band for all of them at once.
fig, ax = plt.subplots(figsize=(7, 4))
plot(month.attribute("age").cutoffs, ax=ax)
gap = confidence_interval(total, dependence=ScoreGap(cutoff=0.6))
ax.errorbar([0.6], [gap.estimate], [[gap.estimate - gap.low], [gap.high - gap.estimate]], fmt="o", color="k")
ax.set_title(f"{total.n:,} rows in {total.counts.size:,} counts", loc="left")
fig.tight_layout()
