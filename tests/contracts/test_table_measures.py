"""The measures with gradients and the table of counts are two implementations of one number.

With a cell for each value they agree to 1e-10, with weights too.
"""

import numpy as np
import pytest
import torch

from frhsic.data import to_sensitive
from frhsic.dependence import GDP, HSIC, DistanceCovariance, KernelHGR, RankGap, ScoreGap
from frhsic.kernels import Gaussian, default_kernel
from frhsic.table import ScoreTable
from frhsic.table import _kernels as kernels
from frhsic.table import _measures as measures

N = 300
COLUMNS = {
    "numbers": ["age"],
    "labels": ["label"],
    "both": ["age", "label"],
    "two numbers": ["age", "x"],
    "many": ["amount"],
}
WEIGHTS = ("equal", "weights", "copies")


def make_rows():
    rng = np.random.default_rng(1)
    age = rng.integers(18, 60, N).astype(float)
    return {
        "z": np.round(1 / (1 + np.exp(-(0.5 * (age - 40) / 20 + rng.normal(size=N)))), 2),
        "age": age,
        "x": np.round(rng.normal(size=N), 1),
        "label": np.array(list("abc"))[rng.integers(0, 3, N)],
        "amount": np.round(100 * rng.standard_cauchy(N), 2),
        "weights": rng.exponential(size=N),
        "copies": np.full(N, 3.0),
    }


class Both:
    """The same rows as the law of a table and as tensors, with the bandwidths of the table."""

    def __init__(self, columns, weights):
        rows = make_rows()
        w = rows.get(weights)
        s = [rows[name] for name in columns]
        self.law = ScoreTable.from_rows(rows["z"], s, sample_weight=w, cells=512).law()
        self.bandwidths = kernels.Bandwidths.of(self.law)
        self.z = torch.tensor(rows["z"])[:, None].requires_grad_()
        self.s = to_sensitive({name: rows[name] for name in columns})
        self.w = None if w is None else torch.tensor(w)
        self.kernel_z = Gaussian(self.bandwidths.z)
        self.kernel_s = default_kernel(self.s.kinds, list(self.bandwidths.s))
        self.cells = self.law.merge(measures.coarse_cells(self.law))

    def of_rows(self, measure):
        # The unbiased forms of rows take no weights: equal ones are none.
        w = None if getattr(measure, "estimator", None) == "unbiased" else self.w
        value = measure(self.z, self.s, w)
        assert value.requires_grad != (
            isinstance(measure, RankGap) or getattr(measure, "cutoff", None) is not None
        )
        return value.item()


def hsic_pair(normalized, unbiased):
    def compute(both):
        estimator = "unbiased" if unbiased else "biased"
        measure = HSIC(both.kernel_z, both.kernel_s, normalized=normalized, estimator=estimator)
        value = measures.hsic(both.law, both.bandwidths)
        return measure, value.of(unbiased=unbiased, normalized=normalized)

    return compute


def distance_pair(normalized, unbiased):
    def compute(both):
        measure = DistanceCovariance(normalized=normalized, estimator="unbiased" if unbiased else "biased")
        value = measures.distance_covariance(both.law)
        return measure, value.of(unbiased=unbiased, normalized=normalized)

    return compute


def hgr_pair(both):
    measure = KernelHGR(kernel_z=both.kernel_z, kernel_s=both.kernel_s)
    return measure, measures.kernel_hgr(both.law, both.bandwidths)


def gap_at(both):
    cutoff = 0.5
    place = np.searchsorted(both.law.z, cutoff, side="right") - 1  # a value on the cut-off belongs below
    return ScoreGap(cutoff=cutoff), measures.decision_gaps(both.cells)[place]


PAIRS = {
    "HSIC": hsic_pair(False, False),
    "HSIC, normalised": hsic_pair(True, False),
    "HSIC, unbiased": hsic_pair(False, True),
    "HSIC, unbiased and normalised": hsic_pair(True, True),
    "distance covariance": distance_pair(False, False),
    "distance correlation": distance_pair(True, False),
    "distance covariance, unbiased": distance_pair(False, True),
    "distance correlation, unbiased": distance_pair(True, True),
    "kernel HGR": hgr_pair,
    "GDP": lambda both: (GDP(), measures.mean_gap(both.cells)),
    "score gap": lambda both: (ScoreGap(), measures.score_gap(both.cells)),
    "rank gap": lambda both: (RankGap(), measures.rank_gap(both.cells)),
    "gap at a cut-off": gap_at,
    "gap at the worst cut-off": lambda both: (
        ScoreGap(cutoff="worst"),
        measures.decision_gaps(both.cells).max(),
    ),
}


def has_pair(name, columns, weights):
    """Return whether rows have the number: distances take one column, and unbiased forms no weights."""
    joint = len(COLUMNS[columns]) > 1
    if ("distance" in name and joint) or ("unbiased" in name and weights == "weights"):
        return False
    return columns != "two numbers" or "HSIC" in name or "HGR" in name


CASES = [
    (name, columns, weights)
    for name in PAIRS
    for columns in COLUMNS
    for weights in WEIGHTS
    if has_pair(name, columns, weights)
]


@pytest.mark.parametrize(("name", "columns", "weights"), CASES, ids=[", ".join(case) for case in CASES])
def test_measures_with_gradients_equal_the_table(name, columns, weights):
    both = Both(COLUMNS[columns], weights)
    measure, value = PAIRS[name](both)
    rows = both.of_rows(measure)
    assert value == pytest.approx(rows, rel=1e-10, abs=1e-10)
