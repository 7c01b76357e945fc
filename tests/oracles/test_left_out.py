"""What cells leave out of HSIC: bounds that hold for the rows, and for any other rows with the same table."""

import numpy as np
import pytest

from frhsic.table import ScoreTable
from frhsic.table import _kernels as kernels
from frhsic.table import _measures as measures
from frhsic.table._left_out import LeftOut, _choose_points, _largest, left_out

FORMS = [(False, False), (False, True), (True, False), (True, True)]
KINDS = ("normal", "log-normal", "Cauchy", "heaps", "ages", "labels", "equal")


def make_rows(kind, n=700, seed=0):
    rng = np.random.default_rng([seed, n])
    x = rng.normal(size=n)
    s = {
        "normal": x,
        "log-normal": np.exp(2 * x),
        "Cauchy": x / rng.normal(size=n),
        "heaps": np.where(rng.random(n) < 0.5, np.round(x), x),
        "ages": np.round(54 + 18 * x),
        "labels": np.array(list("abcdef"))[np.clip(np.floor(x + 3), 0, 5).astype(int)],
        "equal": rng.random(n),
    }[kind]
    return 1 / (1 + np.exp(-0.5 * x - rng.normal(size=n))), s, rng


def naive_hsic(s, z, bandwidths, w, unbiased, normalized):
    """Of all pairs of rows."""
    n = len(z)
    w = np.full(n, 1 / n) if w is None else w / w.sum()
    same = s.dtype.kind == "U"
    K = (s[:, None] == s[None]) * 1.0 if same else np.exp(-0.5 * ((s[:, None] - s) / bandwidths.s[0]) ** 2)
    L = np.exp(-0.5 * ((z[:, None] - z) / bandwidths.z) ** 2)
    H = np.eye(n) - w
    K, L = H @ K @ H.T, H @ L @ H.T
    m = 1 / (w**2).sum()

    def form(A, B):
        value = w @ (A * B) @ w
        if not unbiased:
            return value
        a, b, v = np.diag(A), np.diag(B), w**2
        off = m / (m - 2) * v @ (a * b) - m**2 / ((m - 1) * (m - 2)) * (v @ a) * (v @ b)
        return m / (m - 3) * (value - off)

    return form(K, L) / np.sqrt(form(K, K) * form(L, L)) if normalized else form(K, L)


def assert_bounded(found, rows, table):
    assert isinstance(found, LeftOut)
    assert found.low <= rows - table <= found.high
    assert found.most == max(abs(found.low), abs(found.high))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cells", [48, 160, 512])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "weights"])
def test_bounds_hold_for_the_rows(kind, cells, weighted):
    z, s, rng = make_rows(kind)
    w = rng.exponential(size=len(z)) if weighted else None
    law = ScoreTable.from_rows(z, s, sample_weight=w, cells=cells, levels=cells).law()
    bandwidths = kernels.Bandwidths.of(law)
    value = measures.hsic(law, bandwidths)
    for unbiased, normalized in FORMS:
        found = left_out(law, bandwidths, unbiased=unbiased, normalized=normalized)
        rows = naive_hsic(s, z, bandwidths, w, unbiased, normalized)
        assert_bounded(found, rows, value.of(unbiased=unbiased, normalized=normalized))


def move_within_cells(table, z, s, rng, steps=400):
    """Return other rows of the same table: pairs of one joint cell move apart or together."""
    z, s = z.copy(), s.copy()
    cell, level = table.s[0].codes(s), table.score.codes(z)
    code = cell * table.score.size + level
    places, first = np.unique(code, return_inverse=True)
    groups = [np.flatnonzero(first == j) for j in np.flatnonzero(np.bincount(first) > 1)]
    assert len(places) < len(z)
    for _ in range(steps):
        a, b = rng.choice(groups[rng.integers(len(groups))], 2, replace=False)
        for x, axis, at in ((s, table.s[0], cell[a]), (z, table.score, level[a])):
            if axis.kind != "ranges":
                continue
            margin = 1e-6 * axis.widths[at]  # a value on a border belongs below
            low, high = axis.borders[at] + margin, axis.borders[at + 1] - margin
            if min(x[a], x[b]) < low or max(x[a], x[b]) > high:
                continue
            room = min(high - x[a], x[b] - low)
            back = min(x[a] - low, high - x[b])
            step = rng.choice([room, -back, rng.uniform(-back, room)])
            x[a], x[b] = x[a] + step, x[b] - step
    return z, s


@pytest.mark.parametrize("kind", ["normal", "log-normal", "Cauchy", "equal"])
@pytest.mark.parametrize("cells", [48, 160])
def test_bounds_hold_for_any_rows_of_the_same_table(kind, cells):
    z, s, rng = make_rows(kind)
    table = ScoreTable.from_rows(z, s, cells=cells, levels=cells)
    law = table.law()
    bandwidths = kernels.Bandwidths.of(law)
    value = measures.hsic(law, bandwidths)
    for _ in range(3):
        other_z, other_s = move_within_cells(table, z, s, rng)
        again = ScoreTable.from_rows(other_z, other_s, score_axis=table.score, s_axes=table.s)
        assert np.array_equal(again.counts, table.counts)
        assert np.abs(again.s_sums - table.s_sums).max() <= 100  # of 2^20 units in a cell
        for unbiased, normalized in FORMS:
            found = left_out(law, bandwidths, unbiased=unbiased, normalized=normalized)
            rows = naive_hsic(other_s, other_z, bandwidths, None, unbiased, normalized)
            assert_bounded(found, rows, value.of(unbiased=unbiased, normalized=normalized))


@pytest.mark.parametrize("kind", ["normal", "log-normal", "equal"])
def test_the_bound_is_at_most_three_times_the_difference_where_most_rows_are_alone(kind):
    ratios = {form: [] for form in FORMS}
    for seed in range(3):
        z, s, _ = make_rows(kind, seed=seed, n=600)
        law = ScoreTable.from_rows(z, s).law()
        bandwidths = kernels.Bandwidths.of(law)
        value = measures.hsic(law, bandwidths)
        for (unbiased, normalized), found in ratios.items():
            bound = left_out(law, bandwidths, unbiased=unbiased, normalized=normalized)
            rows = naive_hsic(s, z, bandwidths, None, unbiased, normalized)
            found.append(bound.most / abs(rows - value.of(unbiased=unbiased, normalized=normalized)))
    assert max(np.median(found) for found in ratios.values()) < 3.0


def test_cells_of_values_leave_nothing_out():
    rng = np.random.default_rng(0)
    law = ScoreTable.from_rows(np.round(rng.random(300), 2), rng.integers(18, 90, 300)).law()
    assert left_out(law, kernels.Bandwidths.of(law)) == (0.0, 0.0)


def test_several_columns_of_s_are_refused():
    rng = np.random.default_rng(0)
    law = ScoreTable.from_rows(rng.random(300), [rng.normal(size=300), rng.normal(size=300)]).law()
    with pytest.raises(ValueError, match="'law' must have one column of S"):
        left_out(law, kernels.Bandwidths.of(law))


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_form_is_that_of_a_search_over_all_second_moments(seed):
    rng = np.random.default_rng(seed)
    least, most = np.sort(rng.normal(size=(2, 3)), axis=0)
    u, v = rng.exponential(size=2)
    forms = [(np.array([m]), np.array([x])) for m, x in zip(most, least, strict=True)]
    x, y = np.meshgrid(np.linspace(0, np.sqrt(u), 400), np.linspace(0, np.sqrt(v), 400))
    naive = max(
        (most[0] * x**2 + 2 * b * x * y + most[2] * y**2).max()
        for b in (*(least[1:2]), most[1], -most[1], -least[1])
    )
    largest = float(_largest(forms, np.array([u]), np.array([v]))[0])
    assert naive - 1e-12 <= largest <= naive + 1e-4 * (1 + abs(naive))


def test_features_span_the_kernel_at_their_points():
    x = np.sort(np.random.default_rng(0).standard_cauchy(200))
    points, root = _choose_points(x, 0.7)
    features = np.exp(-0.5 * ((x[:, None] - points) / 0.7) ** 2) @ root
    gram = np.exp(-0.5 * ((x[:, None] - x) / 0.7) ** 2)
    assert len(points) < 200
    assert np.abs(features @ features.T - gram).max() < 1e-9
