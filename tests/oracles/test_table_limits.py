"""Estimates and limits of gaps of a table against loops over rows, definitions and simulations."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from frhsic.table import ScoreTable
from frhsic.table import _errors as errors
from frhsic.table import _measures as measures
from frhsic.table import _rows as law_errors
from frhsic.table._limits import GapErrors


def sample(n=400, seed=0, weights=False, slope=0.2):
    rng = np.random.default_rng(seed)
    s = rng.integers(0, 6, n).astype(float)
    z = np.round(rng.normal(size=n) + slope * s, 1)
    return z, s, rng.exponential(size=n) if weights else None


def table_of(z, s, w=None):
    return ScoreTable.from_rows(z, s, sample_weight=w)


def small(n=400, weights=False, seed=0):
    """Rows as codes of cell and level with weights of sum one, and the law that errors are taken of."""
    z, s, w = sample(n, seed, weights)
    law = table_of(z, s, w).law()
    rows = law_errors.Rows.of(law, np.arange(len(law.z)))
    w = np.ones(n) if w is None else w
    return np.unique(s, return_inverse=True)[1], np.unique(z, return_inverse=True)[1], w / w.sum(), rows


def row_products(cell, level, w, i, r):
    """The product of which C_ir is the mean, for each row."""
    inside, below = (cell == i).astype(float), (level <= r).astype(float)
    return (inside - w @ inside) * (below - w @ below)


@pytest.mark.parametrize("weights", [False, True])
def test_covariances_and_their_variances_are_those_of_rows(weights):
    cell, level, w, rows = small(weights=weights)
    C, V = law_errors.Steps().covariances(rows.shares), law_errors.variances(rows, law_errors.Steps())
    for i, r in ((0, 3), (2, 20), (5, 40)):
        x = row_products(cell, level, w, i, r)
        assert C[i, r] == pytest.approx(w @ x, abs=1e-12)
        loop = sum(wj**2 * xj**2 for wj, xj in zip(w, x, strict=True)) - (w @ w) * (w @ x) ** 2
        assert V[i, r] == pytest.approx(loop, rel=1e-3 if weights else 1e-9)


@pytest.mark.parametrize("weights", [False, True])
def test_the_variance_of_a_signed_sum_is_that_of_rows(weights):
    cell, level, w, rows = small(weights=weights)
    rng = np.random.default_rng(1)
    m, k = rows.shares.shape
    a, more = rng.normal(size=(m, k - 1)), rng.normal(size=k)
    x = more[level] - w @ more[level]
    for i in range(m):
        for r in range(k - 1):
            x = x + a[i, r] * row_products(cell, level, w, i, r)
    mean = w @ x
    loop = sum(wj**2 * (xj - mean) ** 2 for wj, xj in zip(w, x, strict=True))
    assert law_errors.variance_of(rows, law_errors.Steps(), a, more) == pytest.approx(loop, rel=1e-6)
    at = 7
    one = np.zeros_like(a)
    one[:, at] = a[:, at]
    each = law_errors.covariances_each(rows, a[None])[at, 0, 0]
    assert each == pytest.approx(law_errors.variance_of(rows, law_errors.Steps(), one), rel=0.02)


def test_levels_of_a_score_have_the_covariances_of_rows():
    cell, level, w, rows = small()
    z = rows.z[level]
    C, V = (
        law_errors.Values(rows.z).covariances(rows.shares),
        law_errors.variances(rows, law_errors.Values(rows.z)),
    )
    for i in range(3):
        x = ((cell == i) - w @ (cell == i)) * (z - w @ z)
        assert C[i, 0] == pytest.approx(w @ x)
        assert V[i, 0] == pytest.approx(np.var(x) / len(x))


def test_draws_of_the_noise_have_the_variances_of_covariances():
    *_, rows = small()
    noise = errors.Noise(rows, law_errors.Steps(), np.random.default_rng(0))
    ratio = noise.draws.var(axis=0) / noise.sigma**2
    assert ratio.mean() == pytest.approx(1.0, abs=0.1)


def test_the_value_of_learned_signs_is_a_loop_over_cells_cutoffs_and_times():
    cell, level, w, rows = small()
    n = len(w)
    noise = errors.Noise(rows, law_errors.Steps(), np.random.default_rng(0))
    width = 1
    found = errors.Witness(noise, float(n), widths=(width,))
    for r in (2, 25):
        total = 0.0
        share = np.mean(level <= r)
        for i in range(6):
            near = (cell >= i - width) & (cell <= i + width)
            own = row_products(cell, level, w, i, r)
            below = (level <= r).astype(float)
            moved = (near - near.mean()) * (below - below.mean())
            skewness = (1.0 - 2.0 * share) ** 2 / (share * (1.0 - share))
            trust = near.mean() / (near.mean() + 20.0 * skewness / n)
            pooled = (1.0 - near.mean()) * share * (1.0 - share) / n
            variance = trust * np.var(moved) / n + (1.0 - trust) * near.mean() * pooled
            shared = (
                trust * np.cov(own, moved, ddof=0)[0, 1] / n + (1.0 - trust) * np.mean(cell == i) * pooled
            )
            U = moved.mean() / np.sqrt(variance)
            for j in range(6):
                t = 0.3 + 0.7 * (j + 0.5) / 6
                a = np.sqrt(t / (1.0 - t))
                learned = own.mean() * (2.0 * stats.norm.cdf(a * U) - 1.0) * n / (n - 1)
                total += (learned - shared / np.sqrt(variance) * 2.0 * a * stats.norm.pdf(a * U)) / 6
        assert found.values[0, r] == pytest.approx(total, rel=1e-9)


def test_the_closed_form_is_the_mean_over_orders_of_the_rows():
    # Rows x around zero: signs of the sum so far, valued on the next row, from the share .3 of the rows on.
    rng = np.random.default_rng(0)
    n = 400
    x = rng.normal(size=n) + 0.06
    orders = np.argsort(rng.random((3_000, n)), axis=1)
    y = x[orders]
    before = np.cumsum(y, axis=1) - y
    late = np.arange(n) >= 0.3 * n
    simulated = (np.sign(before) * y)[:, late].mean()
    nodes = 0.3 + 0.7 * (np.arange(6) + 0.5) / 6
    a, se = np.sqrt(nodes / (1 - nodes)), x.std() / np.sqrt(n)
    U = x.mean() / se
    exact = np.mean(x.mean() * (2 * stats.norm.cdf(a * U) - 1) - se * 2 * a * stats.norm.pdf(a * U))
    assert simulated == pytest.approx(exact, abs=0.1 * se)


def test_a_blind_choice_has_no_bias():
    rng = np.random.default_rng(0)
    covariance = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]])
    mean = np.array([0.3, 0.0, 0.5])
    V = rng.multivariate_normal(mean, covariance, 3_000)
    value, _ = errors.choose_blindly(V, np.broadcast_to(covariance, (3_000, 3, 3)))
    e = rng.multivariate_normal(np.zeros(3), covariance, 3_000)
    assert value.mean() == pytest.approx(mean[(V + e).argmax(axis=1)].mean(), abs=0.06)
    assert V.max(axis=1).mean() > value.mean() + 0.4


def test_the_mean_of_a_folded_normal_and_its_inverse():
    for k in (0.0, 0.3, 1.0, 4.0, 12.0):
        integral = quad(lambda x, k=k: abs(k + x) * stats.norm.pdf(x), -10, 10, points=[-min(k, 10)])[0]
        assert float(errors.folded_mean(np.array(k))) == pytest.approx(integral, abs=1e-9)
        assert float(errors.invert_folded_mean(integral)) == pytest.approx(k, abs=2e-3)
    assert float(errors.invert_folded_mean(0.5)) == 0.0


def test_the_deviation_of_a_plug_in_is_that_of_resampled_rows():
    rng = np.random.default_rng(0)
    for slope in (0.0, 0.6):
        law = table_of(*sample(1_000, slope=slope)).law()
        rows = law_errors.Rows.of(law, np.arange(len(law.z)))
        dz = np.diff(law.z)
        folded = errors.Folded(errors.Noise(rows, law_errors.Steps(), rng), dz)
        resamples = rng.multinomial(1_000, rows.shares.ravel(), size=400).reshape(400, *rows.shares.shape)
        gaps = np.abs(measures.differences(resamples)).sum(axis=1) @ dz
        assert folded.plug_in == pytest.approx(measures.score_gap(law))
        assert folded.deviation(folded.square) == pytest.approx(gaps.std(), rel=0.15)


def test_the_deviation_of_a_rank_gap_counts_that_of_its_weights():
    z, s, _ = sample(1_500, slope=0.8)
    law = table_of(np.round(z * 2) / 2, s).law()
    rows, rng = law_errors.Rows.of(law, np.arange(len(law.z))), np.random.default_rng(0)
    weights = measures.rank_weights(rows.shares)
    r = np.arange(len(weights))
    own = np.zeros((len(r), len(r) + 1))
    own[r, r] = own[r, r + 1] = 0.5
    folded = errors.Folded(errors.Noise(rows, law_errors.Steps(), rng), weights, own)
    resamples = rng.multinomial(1_500, rows.shares.ravel(), size=600).reshape(600, *rows.shares.shape)
    gaps = (np.abs(measures.differences(resamples)).sum(axis=1) * measures.rank_weights(resamples)).sum(
        axis=1
    )
    assert folded.deviation(folded.square) == pytest.approx(gaps.std(), rel=0.15)


NAMES = ("score_gap", "rank_gap", "mean_gap", "worst")


def numbers_of(table):
    found = GapErrors.of(table)
    band = found.at_all_cutoffs()
    return [*(getattr(found, name)().ends()[:6] for name in NAMES), *(tuple(x) for x in band)]


def test_the_same_table_gives_the_same_numbers_and_so_do_shuffled_rows():
    z, s, w = sample(weights=True)
    order = np.random.default_rng(3).permutation(len(z))
    first = numbers_of(table_of(z, s, w))
    assert first == numbers_of(table_of(z, s, w)) == numbers_of(table_of(z[order], s[order], w[order]))


def test_estimates_lie_between_the_ends_and_ends_widen_with_confidence():
    found = GapErrors.of(table_of(*sample()))
    for limits in (*(getattr(found, name)() for name in NAMES), found.decision_gap(20)):
        wide, narrow = limits.ends(0.99), limits.ends(0.8)
        assert 0.0 <= wide.low <= narrow.low <= narrow.estimate <= narrow.high <= wide.high
        assert wide.estimate <= wide.plug_in
        assert limits.upper(limits.pvalue(narrow.high)) == pytest.approx(narrow.high, rel=1e-3)


def test_the_rank_gap_is_the_same_for_monotone_transformations():
    z, s, _ = sample(1_000)
    first = GapErrors.of(table_of(z, s))
    other = GapErrors(table_of(np.exp(2.0 * z), s).law(), first.seed)
    assert other.rank_gap().ends()[:6] == pytest.approx(first.rank_gap().ends()[:6], rel=1e-9)


def test_two_extreme_rows_hardly_move_a_rank_gap_and_do_not_halve_that_of_decisions():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 6, 20_000).astype(float)
    z = (rng.normal(size=20_000) + 0.3 * s > 1.0).astype(float)
    plain = GapErrors.of(table_of(z, s))
    z[0], z[1] = -1.0, 2.0
    moved = GapErrors.of(table_of(z, s))
    before, after = plain.rank_gap().ends(), moved.rank_gap().ends()
    assert np.abs(np.array(before[:4]) - np.array(after[:4])).max() < 1e-3


def test_the_rank_gap_of_a_yes_no_score_is_half_the_gap_of_the_decision():
    z, s, _ = sample()
    found = GapErrors.of(table_of((z > 0.5).astype(float), s))
    half = found.decision_gap(0).ends()
    assert found.rank_gap().ends()[:6] == pytest.approx([0.5 * x for x in half[:6]])
    assert found.score_gap().ends()[:6] == pytest.approx(half[:6])
    assert found.mean_gap().ends()[:6] == pytest.approx(half[:6])


def test_no_rank_gap_is_above_a_third():
    s = np.repeat(np.arange(20.0), 30)
    found = GapErrors.of(table_of(s + np.linspace(0, 0.5, len(s)), s)).rank_gap().ends()
    assert found.low > 0.29
    assert found.high <= 1.0 / 3.0


def test_few_rows_of_one_decision_have_exact_limits():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 10, 2_000).astype(float)
    z = np.zeros(2_000)
    z[:9] = 1.0
    found = GapErrors.of(table_of(z, s))
    limits = found.decision_gap(0)
    share = stats.beta.isf(0.025, 10, 1_991)
    assert limits.upper(0.025) == pytest.approx(2.0 * share * (1.0 - share))
    assert limits.method == "exact binomial limits"
    assert limits.lower(0.025) == 0.0
    together = np.zeros(2_000)
    together[np.flatnonzero(s == 0)[:25]] = 1.0
    clear = GapErrors.of(table_of(together, s)).score_gap()
    assert 0.0 < clear.lower(0.025) < measures.score_gap(table_of(together, s).law()) < clear.upper(0.025)


def test_merging_levels_moves_limits_by_less_than_a_hundredth_of_their_width():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 12, 3_000).astype(float)
    z = np.exp(rng.normal(size=3_000) + 0.05 * s)
    law = table_of(z, s).law()
    few, many = (GapErrors(law, 0, levels=levels) for levels in (128, 512))
    for name in ("score_gap", "rank_gap"):
        a, b = (getattr(found, name)().ends() for found in (few, many))
        assert len(few.rows.z) < 0.5 * len(many.rows.z)
        assert abs(a.low - b.low) < 0.03 * (b.high - b.low)
        assert abs(a.high - b.high) < 0.03 * (b.high - b.low)


def test_under_independence_the_estimate_is_far_below_the_plug_in():
    rng = np.random.default_rng(0)
    shown, plug_in = [], []
    for seed in range(12):
        s = rng.integers(0, 40, 2_000).astype(float)
        found = (
            GapErrors(ScoreTable.from_rows(rng.normal(size=2_000), s, levels=64).law(), seed)
            .score_gap()
            .ends()
        )
        shown.append(found.estimate)
        plug_in.append(found.plug_in)
        assert found.chance == pytest.approx(found.plug_in, rel=0.25)
    assert np.mean(shown) < 0.2 * np.mean(plug_in)


def test_windows_of_all_cells_have_finite_values():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 5, 300).astype(float)
    found = GapErrors.of(table_of(np.round(rng.normal(size=300), 1), s))
    assert np.abs(found._witness.values).max() < 1.0


def test_a_worst_gap_without_any_learned_sign_has_a_lower_limit_of_zero():
    # In two cells of one row each a window is everything, and one that is chosen has no sign and no error.
    found = GapErrors.of(table_of(np.array([0.1, 0.2] * 40), np.repeat([0.0, 1.0], 40)))
    assert found.worst().ends().low == 0.0
    assert errors.part_beyond_chance(0.0, 0.0) == 0.0


def test_scores_that_are_made_alike_show_no_smaller_limit_than_independent_ones():
    # The same 60 scores at each of 20 values of S: a plug-in of zero, which independent rows never have.
    rng = np.random.default_rng(0)
    z, s = np.tile(np.round(rng.normal(size=60), 2), 20), np.arange(20.0).repeat(60)
    alike, mixed = GapErrors.of(table_of(z, s)), GapErrors.of(table_of(rng.permutation(z), s))
    for name in ("score_gap", "rank_gap", "mean_gap", "worst"):
        limits, others = getattr(alike, name)(), getattr(mixed, name)()
        assert limits.plug_in == pytest.approx(0.0, abs=1e-9)
        assert limits.upper(0.025) == pytest.approx(others.upper(0.025), rel=0.35)
    assert (alike.at_all_cutoffs().high > 0.25 * mixed.at_all_cutoffs().high).all()
