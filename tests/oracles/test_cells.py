"""Cells of S against loops over rows."""

import math

import numpy as np
import pytest
import torch

from frhsic.data import to_sensitive
from frhsic.dependence import GDP
from frhsic.numerics._cells import Cells


def naive_codes(s, w, units):
    """The cell of each row of one numeric column: values where they are few, else ranges of equal mass."""
    values = sorted(set(s))
    if len(values) <= 100 and units >= 20 * len(values):
        return [values.index(x) for x in s]
    count = round(2 * units ** (1 / 3))
    mass = {v: sum(w[i] for i in range(len(s)) if s[i] == v) for v in values}
    cells, upto = {}, 0.0
    for v in values:  # by the middle of its mass
        middle = (upto + mass[v] / 2) * count + 1e-9  # at a border: above
        cells.setdefault(min(int(middle), count - 1), []).append(v)
        upto += mass[v]
    parts = [cells[k] for k in sorted(cells)]
    while len(parts) > 1:  # few rows between two heaps join the smaller neighbour
        sizes = [sum(mass[v] for v in part) for part in parts]
        j = sizes.index(min(sizes))
        if sizes[j] >= 0.5 / count:
            break
        left = j > 0 and (j == len(parts) - 1 or sizes[j - 1] <= sizes[j + 1])
        into = j - 1 if left else j + 1
        parts[into] = sorted(parts[into] + parts[j])
        del parts[j]
    return [next(k for k, part in enumerate(parts) if x in part) for x in s]


def heaped(rng, n):
    return np.where(rng.random(n) < 0.6, 5.0 * rng.integers(4, 18, n), rng.integers(18, 90, n))


LAWS = {
    "uniform": lambda rng, n: rng.random(n),
    "income": lambda rng, n: rng.lognormal(size=n),
    "outlier": lambda rng, n: np.append(rng.random(n - 1), 1e9),
    "ages": lambda rng, n: rng.integers(18, 90, n).astype(float),
    "heaped": heaped,
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.7, 0.0, rng.exponential(size=n)),
    "ten values": lambda rng, n: rng.integers(0, 10, n).astype(float),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("weighted", [False, True])
def test_cells_are_those_of_the_loop_and_gdp_the_mean_gap_of_their_means(law, weighted):
    rng = np.random.default_rng(0)
    s, f = LAWS[law](rng, 400), rng.normal(size=400)
    w = rng.uniform(0.5, 2.0, 400) if weighted else np.ones(400)
    w = w / w.sum()
    sensitive, weights = to_sensitive(s), torch.tensor(w)
    cells = Cells.of(sensitive, weights)
    codes = naive_codes(s.tolist(), w.tolist(), 1 / sum(w**2))
    assert cells.codes(sensitive).tolist() == codes
    assert cells.size == max(codes) + 1
    for k in range(cells.size):
        inside = [x for x, code in zip(s, codes, strict=True) if code == k]
        assert (cells.low[k].item(), cells.high[k].item()) == (min(inside), max(inside))
    overall, gap = sum(w * f), 0.0
    for k in range(cells.size):
        rows = [i for i in range(400) if codes[i] == k]
        mass = sum(w[i] for i in rows)
        gap += mass * abs(sum(w[i] * f[i] for i in rows) / mass - overall)
    value = GDP()(torch.tensor(f), torch.tensor(s), weights).item()
    assert value == pytest.approx(gap, rel=1e-12)


def test_a_monotone_transform_of_s_changes_nothing():
    rng = np.random.default_rng(1)
    s, f = rng.lognormal(size=2_000), rng.normal(size=2_000)
    values = {GDP()(torch.tensor(f), torch.tensor(t)).item() for t in (s, np.log(s), -1 / s)}
    assert max(values) - min(values) < 1e-15


def test_one_outlier_changes_one_row():
    rng = np.random.default_rng(2)
    s = rng.lognormal(size=3_000)
    far = np.where(s == s.max(), 1e9, s)
    codes = [Cells.of(to_sensitive(x)).codes(to_sensitive(x)) for x in (s, far)]
    assert torch.equal(*codes)


def test_coarser_cells_have_no_more_gdp():
    """Jensen: the mean gap of ranges is at most that of the values inside them."""
    rng = np.random.default_rng(3)
    s = rng.integers(0, 60, 3_000).astype(float)
    f = torch.tensor(rng.normal(size=3_000) + (s % 7 == 0))
    fine = GDP()(f, torch.tensor(s)).item()
    for width in (2, 5, 20):
        coarse = GDP()._with(_cells=Cells.of(to_sensitive(np.floor(s / width) * width)))
        assert coarse(f, torch.tensor(s)).item() <= fine + 1e-12


def test_calibrated_cells_are_kept_and_unseen_values_belong_to_the_nearest():
    s = to_sensitive(np.repeat([1.0, 2.0, 4.0], 40))
    cells = Cells.of(s)
    assert cells.exact
    assert cells.codes(to_sensitive([0.0, 1.4, 1.6, 2.9, 3.1, 9.0])).tolist() == [0, 0, 1, 1, 2, 2]
    fixed = GDP().calibrate(torch.randn(120), s)
    f = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 5.0])
    assert fixed(f, torch.tensor([0.0, 1.4, 1.6, 2.9, 3.1, 9.0])).item() == pytest.approx(
        (2 * 4 / 3 + 2 * 1 / 3 + 2 * (3 - 4 / 3)) / 6
    )


def test_several_columns_share_the_number_of_ranges():
    rng = np.random.default_rng(4)
    n = 8_000
    s = to_sensitive(
        {"age": rng.random(n), "income": rng.lognormal(size=n), "sex": rng.choice(["f", "m"], n)}
    )
    cells = Cells.of(s)
    assert cells.size == pytest.approx(2 * 2 * n ** (1 / 3), rel=0.25)  # for each sex
    counts = torch.bincount(cells.codes(s))
    assert counts.min() > 0.5 * n / cells.size / 2
    assert not cells.exact


def test_neighbouring_floats_are_told_apart():
    s = to_sensitive(np.repeat([1.0, math.nextafter(1.0, 2.0)], 30))
    assert torch.bincount(Cells.of(s).codes(s)).tolist() == [30, 30]
