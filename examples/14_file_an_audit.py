"""
File an audit, and check it again
=================================

Limits fixed beforehand, a record with digests, and a second person who computes everything again.
"""

# %%
# The scores of a vendor, and the ages of the applicants. Two limits were written down before anybody looked
# at the rows: 8 points between the scores at one age and all scores, and 10 points at the bank's threshold.
import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from frhsic import audit
from frhsic.auditing import read_record, verify

rng = np.random.default_rng(0)
n = 6_000
age = pd.Series(rng.integers(20, 75, n), name="age")
score = pd.Series(1 / (1 + np.exp(-((age - 47) / 90 + 0.8 * rng.normal(size=n)))), name="risk")
limits = {"gap": 0.08, "gap_at": 0.10}
about = {
    "model": "vendor-risk@4.2",
    "owner": "Credit risk",
    "purpose": "Order of manual checks",
    "limits_fixed": "2026-11-01",
}
found = audit(score, sensitive_features=age, thresholds=[0.6], limits=limits, about=about, random_state=0)
for one in found.limits:
    print(f"{one.title}: {one.state} ({one.low:.3f} to {one.high:.3f}, limit {one.at_most:g})")

# %%
# The record holds the numbers, digests of the columns, options and versions, and a digest of all of it. It
# holds no row.
output = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
path = output / "audit.json"
path.write_text(json.dumps(found.to_dict()))
record = read_record(path)
print(json.dumps(record["record"]["columns"][0], indent=1))
print("digest", record["digest"][:16], "...")

# %%
# A second person with the same rows computes it again: the same bits.
again = audit(
    score, sensitive_features=age, thresholds=[0.6], limits=limits, about=about, random_state=record["seed"]
)
print(verify(record, again))

# %%
# One score that was changed in the seventh digit is found, and so is a limit that was moved afterwards.
moved = score.copy()
moved[17] += 1e-7
other = audit(
    moved, sensitive_features=age, thresholds=[0.6], limits=limits, about=about, random_state=record["seed"]
)
print(verify(record, other).columns)
record["limits"][0]["at_most"] = 0.2
print(*verify(record, again).problems, sep="\n")

# %%
# The picture of the audit. In a notebook, ``found`` alone shows its limits, its numbers and this.
axes = found.plot()
axes.figure.savefig(output / "file_an_audit.png", dpi=150, bbox_inches="tight")
plt.show()
