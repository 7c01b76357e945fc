"""What changed between two audits: the mathematics, the records, the rows, and the command."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from frhsic._checks import ArgumentError
from frhsic.auditing import audit, compare, read_record
from frhsic.auditing._record import digest
from frhsic.cli import run
from frhsic.data import to_sensitive
from frhsic.dependence import GDP, HSIC, ScoreGap
from frhsic.inference import (
    Ends,
    conditional_curve,
    curve_change,
    difference_of_intervals,
    gap_change,
)
from frhsic.inference._gap_change import _Entries, _find_bounds, _learn, _Means, _Windows
from frhsic.numerics._cells import Cells


def rows_of(n, seed, slope, spread=1.0):
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 40, n)
    return 1.0 / (1.0 + np.exp(-slope * (age - 29.5) / 10.0 - spread * rng.normal(size=n))), age


def two_samples(n, seed, old, new):
    (z, s), (y, t) = rows_of(n, 2 * seed, *old), rows_of(n, 2 * seed + 1, *new)
    return np.r_[z, y], {"age": np.r_[s, t]}, np.arange(2 * n) >= n


# ---- formulas ----------------------------------------------------------------------------------------------


def naive_means(X, code, w, size):
    """Gaps within cells and their variance, by loops over cells and columns."""
    overall = np.average(X, axis=0, weights=w)
    gap, own, mass = np.zeros((size, X.shape[1])), np.zeros((size, X.shape[1])), np.zeros(size)
    for c in range(size):
        v = w[code == c] / w[code == c].sum()
        mass[c] = w[code == c].sum() / w.sum()
        m = 1.0 / (v**2).sum()
        mean = v @ X[code == c]
        gap[c] = mean - overall
        own[c] = (v**2) @ (X[code == c] - mean) ** 2 * m / (m - 1.0)
    variance = own * (1.0 - 2.0 * mass[:, None]) + (mass[:, None] ** 2 * own).sum(axis=0)
    return mass, gap, variance


def test_means_within_cells_are_those_of_loops():
    rng = np.random.default_rng(0)
    X, code, w = rng.normal(size=(90, 3)), np.arange(90) % 4, rng.random(90) + 0.1
    w /= w.sum()
    entries = _Entries.of(*map(torch.tensor, (X, code)), 4, torch.tensor(w), torch.arange(90))
    half = torch.arange(45)
    total, parts = entries.sums([half])
    first, second = (_Means(*(x[k] for x in _Means.of(parts))) for k in (0, 1))
    for found, some in ((_Means.of(total), slice(None)), (first, slice(45)), (second, slice(45, None))):
        mass, gap, variance = naive_means(X[some], code[some], w[some], 4)
        np.testing.assert_allclose(found.mass, mass, atol=1e-12)
        np.testing.assert_allclose(found.gap, gap, atol=1e-12)
        np.testing.assert_allclose(found.variance, variance, atol=1e-12)
    torch.testing.assert_close(_Means.of(parts).swap().gap[0], second.gap)


def test_rows_of_one_unit_in_a_cell_count_as_one():
    rng = np.random.default_rng(1)
    X, code, w = torch.tensor(rng.normal(size=(40, 2))), torch.arange(40) % 3, torch.full((40,), 1 / 40)
    w = w.double()
    twice = [torch.cat((x, x)) for x in (X, code, 0.5 * w, torch.arange(40))]
    once = _Means.of(_Entries.of(X, code, 3, w, torch.arange(40)).sums([torch.arange(20)])[0])
    both = _Means.of(_Entries.of(twice[0], twice[1], 3, twice[2], twice[3]).sums([torch.arange(20)])[0])
    torch.testing.assert_close(both.variance, once.variance)
    alone = _Means.of(
        _Entries.of(twice[0], twice[1], 3, twice[2], torch.arange(80)).sums([torch.arange(20)])[0]
    )
    assert bool((alone.variance < 0.6 * once.variance).all())


def test_both_sides_are_the_formula_of_the_docstring():
    rng = np.random.default_rng(2)
    n, size = 400, 3
    s = to_sensitive({"group": rng.choice(["a", "b", "c"], n)})
    code = s.values[:, 0].long()
    X = torch.tensor(rng.normal(size=(n, 2)) + 0.3 * code.numpy()[:, None])
    w, unit, cells = torch.full((n,), 1 / n).double(), torch.arange(n), Cells.of(s)
    found = _find_bounds(X, code, cells, w, unit, 1, torch.Generator().manual_seed(0))
    half = _Entries.of(X, code, size, w, unit).halve(torch.Generator().manual_seed(0)).numpy()
    rest = np.setdiff1d(np.arange(n), half)
    lower = upper = 0.0
    x, c = X.numpy(), code.numpy()
    for learn, judge in ((half, rest), (rest, half)):
        _, g, var = naive_means(x[learn], c[learn], np.ones(len(learn)), size)
        counts = np.bincount(c[learn], minlength=size)[:, None]
        around = np.array([x[learn][c[learn] == k].var(axis=0, ddof=1) for k in range(size)])
        pooled = (counts / len(learn) * around).sum(axis=0) / counts
        v = np.maximum(np.abs(g), 0.6 * np.sqrt(np.maximum(var, pooled)))
        mass, other, variance = naive_means(x[judge], c[judge], np.ones(len(judge)), size)
        lower += 0.5 * mass @ (np.sign(g) * other).sum(axis=1)
        upper += 0.5 * mass @ (0.5 * ((other**2 - variance) / v + v)).sum(axis=1)
    assert found.lower == pytest.approx(min(lower, 0.5 * (lower + upper)))
    assert found.upper == pytest.approx(max(upper, 0.5 * (lower + upper)))


@pytest.mark.parametrize("slope", [0.0, 0.05, 0.5])
def test_on_average_the_two_sides_enclose_the_gap(slope):
    sides = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        s = torch.tensor(rng.integers(0, 10, 300).astype(float))
        X = torch.tensor(slope * (s.numpy() - 4.5)[:, None] / 4.5 + rng.normal(size=(300, 1)))
        cells = Cells.of(to_sensitive(s))
        w, unit = torch.full((300,), 1 / 300).double(), torch.arange(300)
        code = cells.codes(to_sensitive(s))
        one = _find_bounds(X, code, cells, w, unit, 4, torch.Generator().manual_seed(seed))
        sides.append((one.lower, one.upper))
    truth = slope * 2.5 / 4.5
    mean, error = np.mean(sides, axis=0), np.std(sides, axis=0) / 60**0.5
    assert mean[0] <= truth + 3.0 * error[0]
    assert mean[1] >= truth - 3.0 * error[1]
    assert mean[1] - mean[0] < (0.08 if slope == 0.5 else 0.2)


def test_a_sign_that_is_not_clear_comes_from_the_neighbours():
    cells = Cells.of(to_sensitive(np.repeat(np.arange(10.0), 40)))
    gap = torch.full((10, 1), 0.1).double()
    gap[4] = -0.01
    one = torch.ones(10, 1).double()
    means = _Means(torch.full((10,), 0.1).double(), gap, one[:1], gap, 0.01 * one, 0.1 * one)
    windows = _Windows.of(cells, means.mass, 400)
    assert bool((_learn(means, windows)[0] == 1.0).all())
    assert float(_learn(means, None)[0][4]) == -1.0
    clear = means._replace(error=0.001 * one)
    assert float(_learn(clear, windows)[0][4]) == -1.0


def test_two_intervals_make_that_of_a_difference():
    found = difference_of_intervals(Ends(1.0, 0.7, 1.4), Ends(3.0, 2.9, 3.3))
    assert found.estimate == 2.0
    assert found.low == pytest.approx(2.0 - np.sqrt(0.1**2 + 0.4**2))
    assert found.high == pytest.approx(2.0 + np.sqrt(0.3**2 + 0.3**2))


# ---- two samples -------------------------------------------------------------------------------------------


def test_a_change_is_shown_where_there_is_one_and_has_the_right_size():
    z, s, new = two_samples(4_000, 0, (0.2,), (1.2,))
    for measure in (None, GDP(), ScoreGap(cutoff=0.5)):
        found = gap_change(z, s, new=new, dependence=measure, random_state=0)
        true = [
            float((measure or ScoreGap())(*map(torch.tensor, (z[mask], s["age"][mask]))))
            for mask in (~new, new)
        ]
        assert found.shown
        assert found.pvalue < 1e-3
        assert found.low < true[1] - true[0] < found.high
        assert found.change == pytest.approx(found.new - found.old)
        assert "changed by +" in str(found)
        back = gap_change(z, s, new=~new, dependence=measure, random_state=0)
        assert back.high < 0.0
    assert "not shown" in str(gap_change(*two_samples(500, 1, (0.5,), (0.5,))[:2], new=new[3_500:4_500]))


@pytest.mark.parametrize(
    ("old", "new"), [((0.6,), (0.6,)), ((0.0, 1.0), (0.0, 0.3))], ids=["same law", "less spread"]
)
@pytest.mark.parametrize("paired", [False, True])
def test_no_change_of_the_gap_is_seldom_shown(old, new, paired):
    draws, shown = 80, 0
    for seed in range(draws):
        z, s, mask = two_samples(600, seed, old, new)
        if paired:
            rng = np.random.default_rng(seed)
            age = rng.integers(20, 40, 600)
            e = rng.normal(size=(2, 600))
            e[1] = 0.8 * e[0] + 0.6 * e[1]
            laws = [(one[0], (*one, 1.0)[1]) for one in (old, new)]
            z = np.column_stack(
                [a * (age - 29.5) / 10.0 + b * own for (a, b), own in zip(laws, e, strict=True)]
            )
            s, mask = {"age": age}, None
        shown += gap_change(z, s, new=mask, random_state=seed, n_splits=4).shown
    assert shown <= stats.binom.isf(0.001, draws, 0.05)


def test_permutations_of_the_samples_would_take_less_spread_for_a_change():
    """Why the test is no permutation test: estimates of the gap hold what chance adds."""
    z, s, new = two_samples(600, 0, (0.0, 1.0), (0.0, 0.3))
    rng = np.random.default_rng(0)

    def change(mask):
        old, new = (
            float(ScoreGap()(torch.tensor(z[some]), torch.tensor(s["age"][some]))) for some in (~mask, mask)
        )
        return abs(new - old)

    permuted = [change(rng.permutation(new)) for _ in range(99)]
    assert change(new) > max(permuted)
    assert not gap_change(z, s, new=new, random_state=0).shown


def test_the_same_rows_give_a_shorter_interval_and_equal_scores_no_change():
    z, age = rows_of(2_000, 0, 0.5)
    y = np.clip(z + 0.01 * np.random.default_rng(1).normal(size=2_000), 0, 1)
    paired = gap_change(np.column_stack((z, y)), {"age": age}, dependence=GDP(), random_state=0)
    apart = gap_change(
        np.r_[z, y], {"age": np.r_[age, age]}, new=np.arange(4_000) >= 2_000, dependence=GDP(), random_state=0
    )
    assert paired.paired
    assert paired.high - paired.low < 0.7 * (apart.high - apart.low)
    grouped = gap_change(
        np.r_[z, y],
        {"age": np.r_[age, age]},
        new=np.arange(4_000) >= 2_000,
        groups=np.r_[np.arange(2_000), np.arange(2_000)],
        dependence=GDP(),
        random_state=0,
    )
    assert grouped.high - grouped.low < 0.7 * (apart.high - apart.low)
    assert "2,000 groups are in both" in str(grouped)
    same = gap_change(np.column_stack((z, z)), {"age": age}, random_state=0)
    assert (same.low, same.change, same.high) == (0.0, 0.0, 0.0)


def test_every_argument_makes_a_difference():
    z, s, new = two_samples(300, 0, (0.2,), (0.8,))
    plain = gap_change(z, s, new=new, random_state=0).to_dict()
    w = np.random.default_rng(0).random(600) + 0.2
    for change in (
        {"new": np.roll(new, 7)},
        {"dependence": GDP()},
        {"confidence_level": 0.8},
        {"n_splits": 3},
        {"random_state": 1},
        {"sample_weight": w},
        {"groups": np.arange(600) // 3},
    ):
        assert gap_change(z, s, **{"new": new, "random_state": 0, **change}).to_dict() != plain, change
    assert gap_change(z, s, new=new, random_state=0).to_dict() == plain
    curve = curve_change(z, s, new=new, random_state=0).to_dict()
    for change in (
        {"new": np.roll(new, 7)},
        {"confidence_level": 0.8},
        {"n_draws": 99},
        {"random_state": 1},
        {"sample_weight": w},
        {"groups": np.arange(600) // 3},
    ):
        assert curve_change(z, s, **{"new": new, "random_state": 0, **change}).to_dict() != curve, change
    assert curve_change(z, s, new=new, random_state=0).to_dict() == curve


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"new": None}, ValueError, "'new' must say which rows"),
        ({"new": np.arange(200)}, ValueError, "'new' must be true or false"),
        ({"new": np.arange(199) > 90}, ValueError, "'new' must have 200 rows"),
        (
            {"new": np.arange(200) > 190},
            ValueError,
            "at least 20 .* Got 9 in the new one",
        ),
        ({"dependence": HSIC()}, TypeError, "'dependence' must be ScoreGap, RankGap or GDP"),
        ({"dependence": ScoreGap(cutoff="worst")}, ValueError, "one cut-off"),
        ({"dependence": GDP(0.1)}, ValueError, "no 'bandwidth_s'"),
        ({"n_splits": 0}, ValueError, "'n_splits' must be"),
    ],
)
def test_errors_name_the_argument_and_the_fix(change, error, text):
    z, s, new = two_samples(100, 0, (0.2,), (0.8,))
    with pytest.raises(error, match=text):
        gap_change(z, s, **{"new": new, **change})


# ---- the curve ---------------------------------------------------------------------------------------------


def test_the_band_of_two_scores_of_the_same_rows_is_that_of_their_difference():
    z, age = rows_of(2_000, 0, 0.5)
    y = np.clip(z + 0.01 * (age - 30) + 0.05 * np.random.default_rng(1).normal(size=2_000), 0, 1)
    found = curve_change(np.column_stack((z, y)), {"age": age}, random_state=0)
    single = conditional_curve(y - z, {"age": age}, random_state=0)
    np.testing.assert_allclose(found.change, single.mean)
    # A change has a band of one form; that of a curve has two ends where scores are skewed.
    width = np.subtract(single.mean_high, single.mean_low)
    np.testing.assert_allclose(found.low / width, single.mean_low / width, atol=0.1)
    np.testing.assert_allclose(found.high / width, single.mean_high / width, atol=0.1)
    assert max(found.lower) < 30 < min(found.higher)


def test_a_value_at_which_the_change_is_the_same_in_every_row_does_not_spoil_the_band():
    z, age = rows_of(1_000, 0, 0.5)
    y = np.where(age < 25, z, z + 0.1 + 0.01 * np.random.default_rng(1).normal(size=1_000))
    found = curve_change(np.column_stack((z, y)), {"age": age}, random_state=0)
    assert found.higher == tuple(float(one) for one in range(25, 40))
    assert np.isfinite(found.low).all()
    assert (np.array(found.low) <= found.change).all()


def test_the_band_of_two_samples_has_the_length_of_the_error_of_a_difference():
    z, s, new = two_samples(8_000, 0, (0.5,), (0.5,))
    found = curve_change(z, s, new=new, random_state=0, n_draws=1_999)
    for point, change, low, high in zip(found.points, found.change, found.low, found.high, strict=True):
        a, b = (z[(s["age"] == point) & mask] for mask in (~new, new))
        error = (a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)) ** 0.5
        assert change == pytest.approx(b.mean() - a.mean())
        # Twenty means at once: Sidak.
        sidak = stats.norm.isf(0.5 * (1.0 - 0.95 ** (1 / 20)))
        assert (high - low) / (2.0 * error) == pytest.approx(sidak, rel=0.06)


def test_values_of_few_rows_in_one_sample_are_left_out_and_counted():
    z, s, new = two_samples(2_000, 0, (0.5,), (0.5,))
    s["age"][:4_000][new & (s["age"] == 25)] = 26
    found = curve_change(z, s, new=new, random_state=0)
    assert 25.0 not in found.points
    assert len(found.points) == 19
    assert "rows at values with fewer than 10" in str(found)


# ---- records -----------------------------------------------------------------------------------------------


def people(n, seed, slope):
    score, age = rows_of(n, seed, slope)
    rng = np.random.default_rng(seed + 100)
    return pd.DataFrame(
        {
            "score": score,
            "age": age,
            "sex": rng.choice(["f", "m"], n),
            "paid": (rng.random(n) < score).astype(int),
        }
    )


def arguments(frame):
    return {"scores": frame[["score"]], "sensitive_features": frame[["age"]], "y_true": frame["paid"]}


def record(frame, **more):
    return audit(**arguments(frame), random_state=0, thresholds=[0.5], **more).to_dict()


def changed(plain, change):
    """A record with something else in it, and the digest of that."""
    plain = json.loads(json.dumps(plain))
    change(plain)
    return {**plain, "digest": digest(plain)}


@pytest.fixture(scope="module")
def frames():
    old, new = people(1_500, 0, 0.2), people(1_400, 7, 1.5)
    again = old.assign(score=np.clip(old["score"] + 0.02 * (old["age"] - 30), 0, 1))
    return {"old": old, "new": new, "again": again}


@pytest.fixture(scope="module")
def records(frames):
    limits = {"old": {"gap": 0.1}, "new": {"gap": 0.1}, "again": {}}
    return {name: record(frame, limits=limits[name]) for name, frame in frames.items()}


def test_different_rows_have_an_interval_from_the_two_recorded_ones(records):
    found = compare(records["old"], records["new"])
    assert found.samples == "different rows"
    one = found.number("age", "gap")
    plain = [records[name]["attributes"][0]["measures"]["gap"] for name in ("old", "new")]
    ends = difference_of_intervals(*(Ends(x["estimate"], x["low"], x["high"]) for x in plain))
    assert (one.change, one.low, one.high) == ends
    assert one.basis == "intervals"
    assert one.pvalue is None
    assert found.number("age", "kernel_hgr").why == "it has none in the records"
    assert {"gap_at", "calibration_gap", "gdp_within"} <= {x.measure for x in found.numbers}
    assert any("independent samples" in note for note in found.notes)
    assert [(x.what, x.old, x.new) for x in found.data if x.what == "rows"] == [("rows", "1,500", "1,400")]
    assert [x.what for x in found.limits] == ["score gap on age"]
    assert "unchanged" not in str(found)


def test_the_same_rows_have_no_interval_without_rows(records, frames):
    found = compare(records["old"], records["again"])
    assert found.samples == "same rows"
    one = found.number("age", "gap")
    assert one.low is None
    assert "the same rows: give --data for an interval" in str(one)
    rows = {"old_rows": arguments(frames["old"]), "new_rows": arguments(frames["again"])}
    more = compare(records["old"], records["again"], **rows)
    one = more.number("age", "gap")
    assert one.shown
    assert one.basis == "rows"
    curve = more.curves[0].curve
    assert curve.paired
    assert max(curve.lower) < 30 < min(curve.higher)
    assert more.number("age", "hsic").why == "of the same rows only gaps have one"


def test_the_same_data_differ_by_options_only(records, frames):
    other = record(frames["old"], limits={"gap": 0.1}, about={"model": "risk@2"})
    found = compare(records["old"], other)
    assert found.samples == "same data"
    assert [(x.what, x.old, x.new) for x in found.made] == [("model", None, "risk@2")]
    assert all(one.change == 0.0 and one.low is None for one in found.numbers)


def test_rows_of_the_same_data_show_no_change(records, frames):
    again = arguments(frames["old"])
    found = compare(records["old"], records["old"], old_rows=again, new_rows=again)
    assert found.curves == ()
    assert {(one.change, one.low, one.basis) for one in found.numbers} == {(0.0, None, "estimates")}


def test_other_confidence_levels_are_not_compared(records, frames):
    other = record(frames["new"], confidence_level=0.9)
    one = compare(records["old"], other).number("age", "gap")
    assert one.low is None
    assert "cannot be compared: confidence levels differ" in str(one)
    without = changed(records["new"], lambda plain: plain["record"].update(columns=[]))
    found = compare(records["old"], without)
    assert found.samples == "not known"
    assert found.number("age", "gap").low is None


def test_what_only_one_audit_has_is_said(records, frames):
    frame = frames["new"]
    other = audit(frame[["score"]], sensitive_features=frame[["sex"]], random_state=0).to_dict()
    found = compare(records["old"], other)
    assert found.numbers == ()
    assert {"age: in one of the audits only.", "sex: in one of the audits only."} <= set(found.incomparable)


def test_rows_are_checked_against_the_digests(records, frames):
    rows = {name: arguments(frame) for name, frame in frames.items()}
    with pytest.raises(ArgumentError, match="'new_rows' must be the rows of the record"):
        compare(records["old"], records["new"], old_rows=rows["old"], new_rows=rows["old"])
    with pytest.raises(ArgumentError, match="'new_rows' must be passed too"):
        compare(records["old"], records["new"], old_rows=rows["old"])
    with pytest.raises(ArgumentError, match="'new' must be a record as it was written"):
        compare(records["old"], {**records["new"], "n": 1})


def test_from_rows_the_change_is_that_of_gap_change_in_words_and_units(records, frames):
    rows = {"old_rows": arguments(frames["old"]), "new_rows": arguments(frames["new"])}
    found = compare(records["old"], records["new"], **rows)
    both = pd.concat([frames["old"], frames["new"]])
    expected = gap_change(
        both["score"].to_numpy(),
        {"age": both["age"].to_numpy()},
        new=np.arange(2_900) >= 1_500,
        random_state=0,
    )
    one = found.number("age", "gap")
    assert (one.change, one.low, one.high) == (expected.change, expected.low, expected.high)
    assert str(one).startswith(
        f"The score gap on age changed by {100 * one.change:+.1f} percentage points, 95% "
    )
    calibration = found.number("age", "calibration_gap")
    assert calibration.basis == "rows"
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["schema"] == "frhsic.comparison/1"


def test_the_same_people_in_another_order_are_noticed(frames):
    old = frames["old"]
    mixed = old.sample(frac=1.0, random_state=0)
    found = compare(record(old), record(mixed), old_rows=arguments(old), new_rows=arguments(mixed))
    assert found.samples == "different rows"
    assert any("the same values of age in another order" in note for note in found.notes)


def test_a_comparison_holds_no_row(frames):
    rng = np.random.default_rng(0)
    tables = []
    for seed in (0, 1):
        frame = people(300, seed, 0.5)
        frame["income"] = np.exp(rng.normal(size=300))
        tables.append({"scores": frame[["score"]], "sensitive_features": frame[["income", "sex"]]})
    records = [audit(**one, random_state=0).to_dict() for one in tables]
    found = compare(*records, old_rows=tables[0], new_rows=tables[1]).to_dict()
    known = {round(float(x), 9) for one in tables for x in (*one["scores"]["score"],)}

    def numbers(plain):
        if isinstance(plain, dict):
            plain = list(plain.values())
        if isinstance(plain, list):
            return [x for item in plain for x in numbers(item)]
        return [plain] if isinstance(plain, float) else []

    assert not known & {round(x, 9) for x in numbers(found)}


# ---- the command -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, frames, records, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, frame in frames.items():
        frame.to_csv(f"{name}.csv", index=False)
        arguments = ["--score", "score", "--sensitive", "age", "--label", "paid", "--threshold", "0.5"]
        assert run(["audit", f"{name}.csv", *arguments, "--json", f"{name}.json"]) == 0
    return tmp_path


def test_the_command_compares_records_rows_and_limits(folder, capsys):
    capsys.readouterr()
    assert run(["compare", "old.json", "new.json"]) == 0
    out = capsys.readouterr().out
    assert "different rows" in out
    assert "rows: 1,500 -> 1,400" in out
    assert "The score gap on age changed by" in out
    command = ["compare", "old.json", "new.json", "--data", "old.csv", "new.csv"]
    assert run([*command, "--json", "c.json", "--fail-above", "gap=0.5"]) == 0
    out = capsys.readouterr().out
    assert "Along age the mean score is higher than before" in out
    plain = json.loads((folder / "c.json").read_text())
    assert (
        plain
        == compare(
            read_record("old.json"),
            read_record("new.json"),
            old_rows=arguments(pd.read_csv("old.csv")),
            new_rows=arguments(pd.read_csv("new.csv")),
        ).to_dict()
    )
    assert run([*command, "--fail-above", "gap=0.001"]) == 1
    assert "FAILED: score gap on age" in capsys.readouterr().err
    assert run(["compare", "old.json", "again.json", "--fail-above", "gap=0.001"]) == 1
    assert "NOT MEASURED" in capsys.readouterr().err


def test_the_command_says_what_cannot_be_read(folder, capsys):
    (folder / "bad.json").write_text("{}")
    for command, text in (
        (["old.json", "bad.json"], "NEW must be the JSON of an audit"),
        (["none.json", "new.json"], "Check the path"),
        (
            ["old.json", "new.json", "--data", "new.csv", "old.csv"],
            "the first file of --data must be",
        ),
        (["old.json", "new.json", "--json", "old.json"], "--json must not be the file that is read"),
        (["old.json", "new.json", "--fail-above", "equalized_odds=0.1"], "name a number of both audits"),
    ):
        capsys.readouterr()
        assert run(["compare", *command]) == 2, command
        assert text in capsys.readouterr().err
    plain = json.loads((folder / "old.json").read_text())
    plain["attributes"] = 3
    plain["digest"] = digest(plain)
    (folder / "bad.json").write_text(json.dumps(plain))
    assert run(["compare", "bad.json", "new.json"]) == 2


def test_names_are_escaped_in_the_terminal(folder, capsys):
    for name in ("old", "new"):
        plain = json.loads((folder / f"{name}.json").read_text())
        plain["about"]["model"] = f"\x1b[31m[bold]risk[/bold] {name}"
        plain["digest"] = digest(plain)
        (folder / f"{name}.json").write_text(json.dumps(plain))
    capsys.readouterr()
    assert run(["compare", "old.json", "new.json"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[31m[bold]risk[/bold] old" in out


# ---- scores that are not alike -----------------------------------------------------------------------------


def table_of(seed, change=lambda score: score, n=600):
    z, age = rows_of(n, seed, 0.8)
    return {"scores": change(z), "sensitive_features": {"age": age.astype(float)}}


def records_of(*tables):
    return [audit(**table, thresholds=[0.5], random_state=0).to_dict() for table in tables]


@pytest.mark.parametrize(
    ("change", "differ"),
    [
        (lambda z: 100.0 * z, True),
        (lambda z: z + 0.5, True),  # beyond one: no probability
        (lambda z: 0.4 + 0.2 * z, True),
        (lambda z: z**1.2, False),
    ],
    ids=["percent", "beyond one", "shrunk", "alike"],
)
def test_scores_on_other_scales_are_named_first(change, differ):
    found = compare(*records_of(table_of(0), table_of(1, change)))
    assert (found.scale_change is not None) == differ
    assert str(found).startswith("The two scores are on different scales") == differ
    assert found.rank_change is None


@pytest.mark.parametrize("rows", ["records alone", "the same rows", "other rows"])
def test_a_score_that_is_turned_around_is_named_first(rows):
    old = table_of(0)
    new = table_of(1 if rows == "other rows" else 0, lambda z: 1.0 - z)
    arguments = {} if rows == "records alone" else {"old_rows": old, "new_rows": new}
    found = compare(*records_of(old, new), **arguments)
    assert "one minus the old one" in found.rank_change
    assert str(found).startswith(("The new score ranks", "Along age"))
    # Unrelated scores are not said to be turned around.
    noise = table_of(2, lambda z: np.random.default_rng(5).permutation(z))
    arguments = {} if rows == "records alone" else {"old_rows": old, "new_rows": noise}
    assert compare(*records_of(old, noise), **arguments).rank_change is None


def test_a_gate_in_units_of_the_score_is_an_error_on_other_scales(tmp_path, capsys):
    for name, plain in zip(
        ("old", "new"), records_of(table_of(0), table_of(1, lambda z: 100.0 * z)), strict=True
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(plain))
    files = [str(tmp_path / f"{name}.json") for name in ("old", "new")]
    assert run(["compare", *files, "--fail-above", "gap=0.1"]) == 2
    shown = capsys.readouterr()
    assert "different scales" in "".join(shown.out.splitlines()[:3])
    assert "gap_worst" in shown.err
    assert run(["compare", *files, "--fail-above", "gap_worst=0.3"]) == 0


def test_identical_decisions_change_by_zero():
    z, age = rows_of(600, 0, 0.8)
    other = np.where(z > 0.5, 0.5 + 0.5 * z, 0.5 * z)
    found = gap_change(
        np.column_stack((z, other)), {"age": age}, dependence=ScoreGap(cutoff=0.5), random_state=0
    )
    assert (found.change, found.low, found.high, found.pvalue) == (0.0, 0.0, 0.0, 1.0)
    assert found.new == found.old
    assert not found.shown
