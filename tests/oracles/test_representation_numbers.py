"""The tables about representations: means over shared splits, what is kept, and the bound on Crime."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks._protocol import Split
from benchmarks._record import read_rows
from benchmarks.paper import _judges, chosen, representation, scores
from benchmarks.paper._matched import NUMBERS, OURS, Pair, least_performance, matched, pairs, summary, table

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "representation.md"


def row(method, split, strength=0.0, **more):
    cell = {"dataset": "adult", "method": method, "width": "8", "split": split, "strength": strength}
    return cell | dict.fromkeys(NUMBERS, 1.0) | more


def test_a_method_is_compared_on_the_splits_that_both_have():
    rows = [row("Unfair", split, r2_max=0.1 * (split + 1)) for split in range(3)]
    rows += [row(OURS, split, 0.4, r2_max=0.05) for split in (1, 4)]
    (pair,) = pairs(rows)["adult", 8, OURS]
    assert pair.splits == 1
    assert pair.free["r2_max"] == pytest.approx(0.2)  # that of split 1 alone
    assert pair.left("r2_max") == pytest.approx(25.0)


def test_the_strongest_penalty_that_keeps_performance_and_use_is_shown():
    free = {"performance": 0.85, "base": 0.75, "use": 0.5}
    kept = {"performance": 0.846, "base": 0.75, "use": 0.41}
    weak, strong = Pair(0.1, kept, free, 5), Pair(0.4, kept, free, 5)
    of_no_use = Pair(0.6, kept | {"use": 0.39}, free, 5)
    wrong = Pair(0.8, kept | {"performance": 0.8449}, free, 5)
    assert least_performance(0.85, 0.75, regression=False) == pytest.approx(0.845)
    assert [pair.lost("adult") for pair in (strong, of_no_use, wrong)] == ["", "use", "performance"]
    assert matched("adult", [weak, strong, of_no_use, wrong]) is strong
    assert matched("adult", [wrong, of_no_use]) is wrong


def test_of_the_sweep_the_least_r2_of_those_that_keep_both_is_shown():
    rows = [row("Unfair", 0, performance=0.85, base=0.75, use=0.5, r2_max=0.4, gdp=0.1)]
    kept = {"performance": 0.85, "base": 0.75, "use": 0.5, "gdp": 0.05}
    rows += [row(OURS, 0, 0.4, **kept | {"use": 0.3}, r2_max=0.1)]
    rows += [row("FREM", 0, 1.0, **kept, r2_max=0.3), row("dCor", 0, 1.0, **kept, r2_max=0.2)]
    rows += [row("ADV", 0, 1.0, **kept | {"performance": 0.8}, r2_max=0.0)]
    first = summary(rows).splitlines()[2]
    assert first == "| adult | 8 | 25 % / 50 % / 60 % (lost: use) |  | 50 % / 50 % / 100 % | dCor |"


def test_the_worst_of_four_is_at_most_one_where_all_is_met():
    free = {"performance": 0.85, "base": 0.75, "use": 0.5, "r2_max": 0.4, "gdp": 0.1}
    met = {"performance": 0.845, "use": 0.4, "r2_max": 0.14, "gdp": 0.06}
    assert Pair(0.1, met, free, 1).worst("adult", 8) == pytest.approx(1.0)
    for name, value in {"performance": 0.84, "use": 0.2, "r2_max": 0.28, "gdp": 0.12}.items():
        assert Pair(0.1, met | {name: value}, free, 1).worst("adult", 8) == pytest.approx(2.0)
    assert Pair(0.1, met | {"r2_max": 0.4}, free, 1).worst("adult", 50) == pytest.approx(2.0)


def test_rows_of_selected_have_the_weights_that_were_chosen():
    rows = [row for row in read_rows(representation.TABLE) if row["method"] == "selected"]
    assert len(rows) == 50
    for row in rows:
        assert float(row["strength"]) == chosen.chosen(row["dataset"], int(row["width"])).z


def test_the_page_has_the_table_of_the_committed_rows():
    rows = read_rows(representation.TABLE)
    assert {row["method"] for row in rows} <= set(representation.METHODS)
    page = PAGE.read_text()
    assert table(rows) in page
    assert summary(rows) in page
    assert scores.table() in page
    assert scores.table_of_labels() in page


def test_of_all_scores_as_good_none_is_less_correlated_with_s():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(6))  # of a law of X on six points, with means of Y and S at each
    y, s = rng.normal(size=(2, 6))

    def correlation(f, g):
        f, g = (one - (one @ weights)[..., None] for one in (f, g))
        return (f * g) @ weights / np.sqrt((f**2 @ weights) * (g**2 @ weights))

    s = s if correlation(y, s) > 0 else -s
    best = y - 0.3 * s
    others = best + 0.5 * rng.normal(size=(200_000, 6))
    as_good = others[correlation(others, y) >= correlation(best, y)]
    assert len(as_good) > 1_000
    assert correlation(as_good, s).min() >= correlation(best, s)


def test_the_bound_is_met_by_linear_gaussian_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40_000, 2))
    y = x[:, 0] + rng.normal(size=40_000)
    s = x[:, 0] + x[:, 1] + rng.normal(size=40_000)
    half = slice(20_000), slice(20_000, None)
    data = Split(*(one[half[0]] for one in (x, y, s)), *(one[half[1]] for one in (x, y, s)), regression=True)
    for point in scores.points(data, "linear"):
        f = np.array([1.0 - point["t"], -point["t"]])  # E[Y|X] - t E[S|X]
        assert point["performance"] == pytest.approx(f[0] ** 2 / (f @ f) / 2.0, abs=0.02)
        assert point["r2"] == pytest.approx(f.sum() ** 2 / (f @ f) / 3.0, abs=0.02)


def test_a_score_of_labels_leaves_what_its_law_leaves():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40_000, 2))
    s = x[:, 0] + x[:, 1] + rng.normal(size=40_000)
    y = 1 * (x[:, 0] + rng.logistic(size=40_000) > 0)
    half = slice(20_000), slice(20_000, None)
    data = Split(*(one[half[0]] for one in (x, y, s)), *(one[half[1]] for one in (x, y, s)), regression=False)
    for point in scores.points_of_labels(data, "linear")[:11]:
        t = point["t"] / np.sqrt(3.0)  # log odds are x_0 - t (x_0 + x_1)
        correlated = (1.0 - 2.0 * t) ** 2 / ((1.0 - t) ** 2 + t**2) / 3.0
        assert point["decision"] == pytest.approx(2.0 / np.pi * correlated, abs=0.02)
        assert point["r2"] == pytest.approx(correlated, abs=0.02)  # nearly linear in this range


def test_judges_recover_what_is_there_and_nothing_else():
    rng = np.random.default_rng(0)
    s = rng.normal(size=3_000)
    z = np.column_stack([1e-3 * s, rng.normal(size=3_000)])  # in a direction of small variance
    half = slice(1_500), slice(1_500, None)
    found = _judges.recovered(z[half[0]], s[half[0]], z[half[1]], s[half[1]])
    noise = _judges.recovered(z[half[0], 1:], s[half[0]], z[half[1], 1:], s[half[1]])
    assert len(found) == 12
    assert min(found.values()) > 0.9
    assert max(noise.values()) < 0.02
