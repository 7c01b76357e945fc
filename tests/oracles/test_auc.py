"""The AUC along S against double loops, and its intervals against formulas written another way."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from frhsic._checks import ArgumentError
from frhsic.inference import auc_curve


def naive(y, score, w, groups):
    """Return AUC, variance, degrees of freedom and the units of the rarer class of some rows, by loops."""
    pos, neg = ([i for i in range(len(y)) if y[i] == label] for label in (1, 0))
    a, b = ({i: w[i] / sum(w[j] for j in rows) for i in rows} for rows in (pos, neg))
    psi = {(i, j): 0.5 * (float(score[i] > score[j]) + float(score[i] >= score[j])) for i in pos for j in neg}
    auc = sum(a[i] * b[j] * psi[i, j] for i, j in psi)
    placed = {i: sum(b[j] * psi[i, j] for j in neg) for i in pos}
    placed |= {j: sum(a[i] * psi[i, j] for i in pos) for j in neg}
    errors, variances, free = dict.fromkeys(groups, 0.0), [], []
    for shares in (a, b):
        own, sizes = dict.fromkeys(groups, 0.0), dict.fromkeys(groups, 0.0)
        for i, share in shares.items():
            own[groups[i]] += share * (placed[i] - auc)
            sizes[groups[i]] += share
        m = 1.0 / sum(size**2 for size in sizes.values())
        for unit in own:
            errors[unit] += own[unit] * math.sqrt(m / (m - 1.0))
        variances.append(sum(x * x for x in own.values()) * m / (m - 1.0))
        free.append(m - 1.0)
    degrees = sum(variances) ** 2 / sum(v * v / m for v, m in zip(variances, free, strict=True))
    return auc, sum(x * x for x in errors.values()), degrees, min(free) + 1.0


def wilson(rate, n, t):
    """Return the two x with (rate - x)^2 = t^2 x (1 - x) / n."""
    return sorted(np.roots([1 + t * t / n, -(2 * rate + t * t / n), rate * rate]).real)


def people(n=600, seed=0, step=0.5):
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 50, n)
    y = (rng.random(n) < 0.4).astype(int)
    score = np.round((0.8 * y + 0.02 * age + rng.normal(size=n)) / step) * step
    return y, score, age


def inside(found, window, age):
    return (age >= found.start[window]) & (age <= found.stop[window])


@pytest.mark.parametrize(
    ("weighted", "grouped"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_auc_and_interval_are_those_of_double_loops(weighted, grouped):
    y, score, age = people()
    rng = np.random.default_rng(1)
    w = rng.exponential(size=len(y)) + 0.3 if weighted else np.ones(len(y))
    groups = np.arange(len(y)) // 2 if grouped else np.arange(len(y))
    found = auc_curve(
        y,
        score,
        {"age": age},
        sample_weight=w if weighted else None,
        groups=groups if grouped else None,
        confidence_level=0.9,
    )
    assert len(found.auc) > 1
    tail = 0.05 / len(found.auc)
    for window, (auc, low, high) in enumerate(zip(found.auc, found.low, found.high, strict=True)):
        rows = inside(found, window, age)
        expected, variance, degrees, units = naive(y[rows], score[rows], w[rows], groups[rows].tolist())
        assert auc == pytest.approx(expected, abs=1e-12)
        assert found.counts[window] == rows.sum()
        assert found.positives[window] == y[rows].sum()
        assert found.mass[window] == pytest.approx(w[rows].sum() / w.sum())
        middle = (units * auc + 0.5) / (units + 1)
        reach = stats.t.isf(tail, degrees) * math.sqrt(variance) / (middle * (1 - middle))
        centre = math.log(middle / (1 - middle))
        other = wilson(auc, middle * (1 - middle) / variance, stats.t.isf(tail, degrees))
        assert units * min(auc, 1 - auc) > 5
        assert low == pytest.approx(min(other[0], 1 / (1 + math.exp(-(centre - reach)))), rel=1e-9)
        assert high == pytest.approx(max(other[1], 1 / (1 + math.exp(-(centre + reach)))), rel=1e-9)
    assert found.overall == pytest.approx(roc_auc_score(y, score, sample_weight=w), abs=1e-12)


def test_the_variance_of_equal_weights_is_that_of_delong():
    y, score, _ = people(200, step=0.1)
    x, z = score[y == 1], score[y == 0]
    psi = (np.sign(x[:, None] - z) + 1.0) / 2.0
    delong = psi.mean(axis=1).var(ddof=1) / len(x) + psi.mean(axis=0).var(ddof=1) / len(z)
    assert naive(y, score, np.ones(200), list(range(200)))[1] == pytest.approx(delong)


def test_windows_are_joined_until_each_class_has_thirty_rows():
    y, score, age = people(2_000)
    found = auc_curve(y, score, {"age": age})
    negatives = [count - positive for count, positive in zip(found.counts, found.positives, strict=True)]
    assert min(*found.positives, *negatives) >= max(30, y.sum() / int(y.sum() ** (1 / 3)))
    assert sum(found.counts) == 2_000
    assert found.start[0] == -math.inf
    assert found.stop[-1] == math.inf
    for stop, start in zip(found.stop, found.start[1:], strict=False):
        assert start == stop + 1  # ages are whole numbers, and so are the ends
    assert all(
        start <= at <= stop for start, at, stop in zip(found.start, found.points, found.stop, strict=True)
    )


def test_windows_depend_on_outcomes_and_s_but_not_on_scores():
    y, score, age = people(2_000)
    first, second = auc_curve(y, score, {"age": age}), auc_curve(y, np.sin(score * 7.0), {"age": age})
    assert first.auc != second.auc
    assert (first.start, first.stop, first.counts) == (second.start, second.stop, second.counts)


def test_a_heap_of_one_value_is_a_window_of_its_own_and_wide_gaps_end_halfway():
    y, score, _ = people(900, seed=3)
    s = np.repeat([1.5, 40.0, 41.0], 300)
    found = auc_curve(y, score, {"s": s})
    assert found.counts == (300, 300, 300)
    assert (found.start, found.stop) == ((-math.inf, 40.0, 40.5), (20.75, 40.0, math.inf))


def test_a_perfect_score_a_reversed_one_and_a_constant_one_have_intervals():
    y = np.tile([0, 1], 300)
    age = np.repeat(np.arange(20, 40), 30)
    for score, auc in ((y, 1.0), (-y, 0.0), (np.zeros(600), 0.5)):
        found = auc_curve(y, score, {"age": age})
        assert set(found.auc) == {auc}
        for low, high in zip(found.low, found.high, strict=True):
            assert 0.0 <= low <= auc <= high <= 1.0
            assert 0.02 < high - low < 0.6
    perfect, reversed_ = (auc_curve(y, sign * y, {"age": age}) for sign in (1, -1))
    assert perfect.low == pytest.approx([1 - x for x in reversed_.high])
    for low, rows in zip(perfect.low, perfect.positives, strict=True):  # half of the rows are positive
        t = stats.t.isf(0.025 / len(perfect.low), rows - 1)
        assert low == pytest.approx(rows / (rows + t * t))


def test_one_missed_row_of_thirty_has_the_interval_of_a_rate_at_least():
    y = np.r_[np.ones(30), np.zeros(400)].astype(int)
    score = np.r_[-1.0, np.ones(29), np.zeros(400)]
    found = auc_curve(y, score, {"s": np.arange(430) % 7})
    (auc,), (low,), (high,) = found.auc, found.low, found.high
    t = stats.t.isf(0.025, naive(y, score, np.ones(430), list(range(430)))[2])
    assert low <= wilson(auc, 30, t)[0] + 1e-12
    assert high >= wilson(auc, 30, t)[1] - 1e-12


def test_categories_without_thirty_rows_of_a_class_are_left_out_with_a_note():
    y, score, age = people(1_000)
    sex = np.where(age < 30, "f", np.where(age < 49, "m", "x"))
    found = auc_curve(y, score, {"sex": sex})
    assert found.categories == ("f", "m")
    assert found.points == (0.0, 1.0)
    assert found.notes == ("1 of 3 categories have fewer than 30 rows of one class: no AUC.",)
    for window, name in enumerate(found.categories):
        assert found.auc[window] == pytest.approx(roc_auc_score(y[sex == name], score[sex == name]))
    assert "(f)" in str(found)


def test_the_other_label_gives_the_other_side():
    y, score, age = people(1_000)
    names = np.where(y == 1, "paid", "late")
    found, other = (auc_curve(names, score, {"age": age}, positive_label=one) for one in ("paid", "late"))
    assert (found.label, other.label) == ("paid", "late")
    assert found.auc == auc_curve(y, score, {"age": age}).auc
    assert other.auc == pytest.approx([1 - x for x in found.auc])
    assert other.low == pytest.approx([1 - x for x in found.high])


def test_groups_of_copies_are_as_wide_as_the_rows_behind_them():
    y, score, age = people(900, seed=5)
    alone = auc_curve(y, score, {"age": age})
    copies = auc_curve(
        *(np.repeat(x, 3) for x in (y, score)), {"age": np.repeat(age, 3)}, groups=np.arange(2_700) // 3
    )
    assert (copies.start, copies.n) == (alone.start, alone.n)
    assert copies.auc == pytest.approx(alone.auc)
    assert copies.low == pytest.approx(alone.low)


def test_weights_are_copies_of_rows_for_the_auc_and_none_drop_out():
    y, score, age = people(900, seed=6)
    w = np.arange(900) % 3
    found = auc_curve(y, score, {"age": age}, sample_weight=w)
    for window, auc in enumerate(found.auc):
        rows = inside(found, window, age)
        assert auc == pytest.approx(
            roc_auc_score(np.repeat(y[rows], w[rows]), np.repeat(score[rows], w[rows]))
        )
    kept = w > 0
    again = auc_curve(y[kept], score[kept], {"age": age[kept]}, sample_weight=w[kept])
    assert again.to_dict() == found.to_dict()


def test_a_higher_confidence_is_wider():
    y, score, age = people(900)
    narrow, wide = (auc_curve(y, score, {"age": age}, confidence_level=level) for level in (0.8, 0.99))
    for pair in itertools.starmap(zip, ((narrow.low, wide.low), (wide.high, narrow.high))):
        assert all(a > b for a, b in pair)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_true": np.arange(300) % 3}, r"^'y_true' must have two labels\. Got 3\."),
        (
            {"y_true": (np.arange(300) < 12).astype(int)},
            r"^'y_true' must have at least 30 rows of each class\. Got 12",
        ),
        ({"y_true": None}, r"^'y_true' must be a column of these rows\. Got None"),
        (
            {"positive_label": 7},
            r"^'positive_label' must be a label of 'y_true'\. Got 7\. Take one of 0, 1\.",
        ),
        (
            {"sensitive_features": np.arange(600).reshape(300, 2)},
            r"^'sensitive_features' must be one column for a curve\. Got 2",
        ),
        (
            {"sensitive_features": ["a", "b", "c"] * 100, "y_true": np.arange(300) < 60},
            "have a category with at least 30",
        ),
        ({"confidence_level": 95}, r"^'confidence_level' must"),
        ({"groups": np.arange(300) // 30}, r"^'groups' must be at least 20"),
        ({"scores": np.arange(20.0)}, "'sensitive_features' must have 20 rows|'scores' must"),
    ],
)
def test_what_cannot_be_measured_is_an_error_that_names_the_argument(changes, message):
    y, score, age = people(300)
    with pytest.raises(ArgumentError, match=message):
        auc_curve(**{"y_true": y, "scores": score, "sensitive_features": {"age": age}} | changes)


def test_the_result_prints_as_a_sentence_and_goes_into_a_frame():
    y, score, age = people(900)
    found = auc_curve(y, score, {"age": age})
    assert str(found).startswith("The AUC along age is between 0.")
    assert str(found).endswith("(n = 900).")
    frame = found.to_frame()
    assert list(frame["auc"]) == list(found.auc)
    assert list(frame["positives"]) == list(found.positives)
