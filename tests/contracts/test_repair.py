"""What repair promises: one law along S, ranks kept, nothing beyond its support without a word."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from frhsic import FRHSICClassifier
from frhsic._checks import ArgumentError
from frhsic.boosting import FRHSICBoostingClassifier, FRHSICBoostingRegressor
from frhsic.cli import _repair, run
from frhsic.data import Sensitive, to_sensitive
from frhsic.dependence import GDP, ScoreGap
from frhsic.inference import confidence_interval
from frhsic.repair import RepairedModel, ScoreRepair
from frhsic.repair._map import count, make_map
from frhsic.selection import FrontierSearch, lowest_dependence
from frhsic.sources import read_table, write_table


def sample(n=4_000, seed=0):
    """Return scores whose mean and spread change with age."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 70, n).astype(float)
    return rng.normal(age / 20.0, 0.3 + age / 60.0), age


def measured(measure, x, s):
    return measure(torch.from_numpy(np.array(x, dtype=float))[:, None], to_sensitive(s)).item()


def test_most_of_the_dependence_goes_on_other_rows():
    repair = ScoreRepair(random_state=0).fit(*sample())
    x, s = sample(50_000, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scores beyond the rows of fit
        y = repair.transform(x, s)
    assert measured(ScoreGap(), y, s) < 0.15 * measured(ScoreGap(), x, s)
    assert measured(GDP(), y, s) < 0.12 * measured(GDP(), x, s)
    # The spread, too, which a shift of means would leave.
    young, old = (y[(s >= low) & (s < low + 10)] for low in (20, 60))
    assert abs(np.std(young) / np.std(old) - 1.0) < 0.1


def naive(x, s, x_new, s_new):
    """Return E_s' Q(F(x | s) | s') for groups without smoothing, F the mean of both limits."""
    groups = {v: np.sort(x[s == v]) for v in np.unique(s)}
    found = []
    for one, group in zip(x_new, s_new, strict=True):
        own = groups[group]
        u = 0.5 * (np.searchsorted(own, one, "left") + np.searchsorted(own, one, "right")) / len(own)
        parts = [np.mean(s == v) * np.quantile(rows, u, method="hazen") for v, rows in groups.items()]
        found.append(sum(parts))
    return np.array(found)


def test_map_is_the_mean_of_quantiles_for_groups():
    rng = np.random.default_rng(0)
    s = rng.choice(["a", "b", "c"], 3_000)
    x = rng.normal({"a": 0.0, "b": 1.0, "c": -0.5}["a"] + (s == "b") - 0.5 * (s == "c"), 1.0 + (s == "b"))
    y = ScoreRepair(random_state=0).fit(x, s).transform(x, s)
    expected = naive(x, s, x, s)
    assert np.quantile(np.abs(y - expected), 0.99) < 0.05  # but for the tails, of a few rows
    assert np.abs(y - expected).mean() < 0.01


@pytest.mark.parametrize("law", ["normal", "ties", "heavy", "zeros"])
def test_order_is_kept_among_equals_in_s(law):
    x, s = sample(3_000)
    if law == "ties":
        x = np.round(x)
    if law == "heavy":
        x = np.exp(2.0 * x)
    if law == "zeros":
        x = np.maximum(x, np.quantile(x, 0.4))
    y = ScoreRepair(random_state=0).fit(x, s).transform(x, s)
    for value in np.unique(s):
        rows = s == value
        order = np.argsort(x[rows], kind="stable")
        assert (np.diff(y[rows][order]) >= -1e-9 * np.abs(y).max()).all()
        # Equal scores at one age stay equal.
        for score in np.unique(x[rows])[:5]:
            assert np.ptp(y[rows][x[rows] == score]) <= 1e-9 * max(1.0, np.abs(y).max())


def test_ties_leave_what_they_must_and_no_more():
    rng = np.random.default_rng(0)
    s = rng.choice(["a", "b"], 6_000)
    x = (rng.random(6_000) < np.where(s == "a", 0.3, 0.5)).astype(float)  # two scores
    y = ScoreRepair(random_state=0).fit(x, s).transform(x, s)
    means = [y[s == v].mean() for v in ("a", "b")]
    assert abs(means[0] - means[1]) < 0.01  # means are equal,
    assert len(np.unique(y)) == 4  # and yet each group has two scores of its own


def test_amount_moves_a_part_of_the_way():
    x, s = sample()
    none, half, whole = (ScoreRepair(a, random_state=0).fit(x, s).transform(x, s) for a in (0.0, 0.5, 1.0))
    assert np.array_equal(none, x)
    assert np.allclose(half, 0.5 * (x + whole))


def persons(people=60, each=5, seed=0):
    """Return scores, ages and persons: rows of one person are much alike."""
    rng = np.random.default_rng(seed)
    person = np.arange(people).repeat(each)
    age = rng.choice(np.arange(20.0, 70.0, 10.0), people)[person]
    return age / 20.0 + rng.normal(size=people)[person] + 0.3 * rng.normal(size=people * each), age, person


def test_no_row_is_repaired_by_a_map_that_saw_another_row_of_its_person():
    x, s, person = persons()
    before = ScoreRepair(random_state=0).fit_transform(x, s, groups=person)
    changed = x.copy()
    changed[1:5] = changed[1:5] - 0.5  # four of the five rows of the first person
    after = ScoreRepair(random_state=0).fit_transform(changed, s, groups=person)
    assert after[0] == before[0]
    alone = ScoreRepair(random_state=0)
    assert alone.fit_transform(changed, s)[0] != alone.fit_transform(x, s)[0]


def test_intervals_of_persons_are_those_of_so_many_groups():
    x, s, person = persons()
    grouped = ScoreRepair(random_state=0).fit(x, s, groups=[f"p{i}" for i in person])
    alone = ScoreRepair(random_state=0).fit(x, s)
    assert (grouped.n_groups_, alone.n_groups_) == (60, None)
    assert (grouped.left_["gap"].n, alone.left_["gap"].n) == (60, 300)
    for name in ("gap", "gdp"):
        assert grouped.left_[name].high > 1.2 * alone.left_[name].high
    assert grouped.width_ > alone.width_
    assert "fitted on 300 rows in 60 groups:" in str(grouped)


def test_groups_of_one_row_are_no_groups():
    x, s, _ = persons()
    found = [ScoreRepair(random_state=0).fit_transform(x, s, groups=g) for g in (None, np.arange(300))]
    assert np.array_equal(*found)


def test_fewer_than_twenty_groups_are_an_error():
    x, s, _ = persons()
    with pytest.raises(ArgumentError, match=r"'groups' must be at least 20, .*Got 19\."):
        ScoreRepair().fit(x, s, groups=np.arange(300) % 19)


def test_an_index_that_repeats_its_labels_is_a_warning_unless_groups_say_so():
    x, s, person = persons()
    frame = pd.DataFrame({"score": x, "age": s}, index=pd.Index(person, name="person"))
    with pytest.warns(UserWarning, match=r"index of 'scores' has 60 labels for 300 rows.*as 'groups'"):
        ScoreRepair(random_state=0).fit(frame["score"], frame["age"])
    ScoreRepair(random_state=0).fit(frame["score"], frame["age"], groups=person)
    plain = frame.reset_index(drop=True)
    ScoreRepair(random_state=0).fit(plain["score"], plain["age"])


def test_the_command_takes_groups_and_tells_of_ids_that_repeat(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, s, person = persons()
    columns = {"score": x, "age": s, "person_id": [f"p{i}" for i in person], "candid": np.arange(300) // 2}
    write_table(columns, "panel.csv")
    line = ["repair", "panel.csv", "--score", "score", "--sensitive", "age", "-o", "r.csv"]
    assert run(line) == 0
    out, err = capsys.readouterr()
    assert "Note: 'person_id' has 60 values in 300 rows." in err
    assert "pass --groups 'person_id'" in err
    assert "candid" not in err
    assert run([*line, "--groups", "person_id", "--limit", "gap_at:1=0.3"]) == 0
    out, err = capsys.readouterr()
    first = out.partition("\n")[0]
    assert "gap_at 1: 0." in first
    assert first.endswith("on 300 rows in 60 groups, each by a map of the other folds.")
    assert "fitted on 300 rows in 60 groups" in out
    assert "person_id" not in err


@pytest.fixture
def two_files(tmp_path, monkeypatch):
    """Write two samples, of scores and of decisions, into the working folder; return a command."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("a.csv", 0), ("b.csv", 1)):
        x, s = sample(200, seed)
        decision = (np.random.default_rng(seed).random(200) < (s - 20.0) / 50.0).astype(int)
        write_table({"score": x, "decision": decision, "age": s}, name)
    return ["repair", "a.csv", "--sensitive", "age", "-o", "r.csv", "--score"]


def test_the_command_writes_nothing_that_misses_its_limit_unless_told_to(two_files, tmp_path, capsys):
    missed = [*two_files, "decision", "--limit", "gap=0.02"]  # two scores cannot be spread
    assert run(missed) == 1
    out, err = capsys.readouterr()
    assert out.startswith("Limit missed: gap 0.02. gap 0.")
    assert "No scores are written: a limit is missed. Pass --save-missed" in err
    assert not (tmp_path / "r.csv").exists()
    assert run([*missed, "--save-missed"]) == 1
    assert (tmp_path / "r.csv").exists()


def test_the_command_says_whether_a_limit_is_kept_or_open(two_files, tmp_path, capsys):
    assert run([*two_files, "score", "--limit", "gap=0.3"]) == 0
    first = capsys.readouterr().out.partition("\n")[0]
    assert first.startswith("Limit open: gap 0.3. gap 0.")
    assert first.endswith(", on 200 rows, each by a map of the other folds.")
    assert (tmp_path / "r.csv").exists()
    assert run([*two_files, "score", "--limit", "gap=5", "--fit", "b.csv"]) == 0
    first = capsys.readouterr().out.partition("\n")[0]
    assert first.startswith("Limit kept: gap 5. gap ")
    assert first.endswith(", on 200 rows of FILE, which took no part.")


def test_what_is_reached_has_the_names_of_what_is_left():
    x, s = sample(200)
    repair = ScoreRepair(limit={"gap": 0.3, "gap_worst": 0.2}, random_state=0).fit(x, s)
    assert [one.name for one in repair.reached_] == ["gap", "gap_worst"]
    assert 0.7 < max(one.judged / one.limit for one in repair.reached_) < 1.05
    assert " on 200 steering rows; limit 0.3." in str(repair.reached_[0])
    assert list(repair.left_) == ["gap", "gdp", "gap_worst"]
    for one in repair.reached_:
        assert one.judged == pytest.approx(repair.left_[one.name].estimate, rel=1e-9)
    ranks = ScoreRepair(limit={"rank_gap": 0.05}, random_state=0).fit(x, s)
    assert 0.0 < ranks.amount_ <= 1.0
    assert ranks.reached_[0].judged == pytest.approx(ranks.left_["rank_gap"].estimate, rel=1e-9)


def test_limit_takes_the_least_amount_that_keeps_it():
    x, s = sample(20_000)
    before = measured(ScoreGap(), x, s)
    repair = ScoreRepair(limit={"gap": 0.3 * before}, random_state=0).fit(x, s)
    assert 0.5 < repair.amount_ < 0.9
    assert repair.left_["gap"].estimate == pytest.approx(0.3 * before, rel=0.1)
    assert ScoreRepair(limit={"gap": 2.0 * before}, random_state=0).fit(x, s).amount_ == 0.0
    with pytest.warns(UserWarning, match="leaves more than the limit"):
        coarse = ScoreRepair(limit={"gap": 0.05 * before}, width=0.9, random_state=0).fit(x, s)
    assert coarse.amount_ == 1.0


def test_interval_is_of_rows_that_took_no_part():
    # With as many ages as rows a map that has seen them would leave nothing.
    rng = np.random.default_rng(0)
    s = rng.random(300)
    x = s + 0.1 * rng.normal(size=300)
    repair = ScoreRepair(width=0.003, random_state=0).fit(x, s)
    seen = measured(ScoreGap(), repair.transform(x, s), s)
    assert repair.left_["gap"].estimate > 1.2 * seen


@pytest.mark.parametrize("kind", ["categorical", "mixed", "two numbers"])
def test_every_kind_of_s(kind):
    rng = np.random.default_rng(0)
    n = 6_000
    age, zone = rng.uniform(20, 70, n), rng.choice(["n", "s", "w"], n)
    income = rng.lognormal(0.0, 1.5, n)
    x = age / 20.0 + (zone == "s") + 0.5 * np.log(income) + rng.normal(size=n)
    columns = {
        "categorical": {"zone": zone},
        "mixed": {"age": age, "zone": zone},
        "two numbers": {"age": age, "income": income},
    }[kind]
    s = pd.DataFrame(columns)
    y = ScoreRepair(random_state=0).fit(x, s).transform(x, s)
    for name in s:
        before, after = (measured(GDP(), v, s[[name]]) for v in (x, y))
        assert after < 0.3 * before, name


def test_a_monotone_transform_of_s_changes_nothing():
    x, s = sample()
    rng = np.random.default_rng(1)
    s = s + rng.random(len(s))  # no ties
    a = ScoreRepair(random_state=0).fit(x, s).transform(x, s)
    b = ScoreRepair(random_state=0).fit(x, np.exp(s)).transform(x, np.exp(s))
    assert np.allclose(a, b, atol=1e-8)


def test_units_of_the_score_change_nothing():
    x, s = sample()
    a = ScoreRepair(random_state=0).fit(x, s).transform(x, s)
    b = ScoreRepair(random_state=0).fit(1e6 * x + 5e8, s).transform(1e6 * x + 5e8, s)
    assert np.allclose(1e6 * a + 5e8, b, rtol=1e-9, atol=20.0)


def test_weights_are_copies():
    x, s = sample(1_500)
    w = np.where(s > 45, 3, 1)
    twice = np.repeat(np.arange(1_500), w)
    weighted = make_map(count(*_tensors(x, s), torch.from_numpy(w.astype(float))), 0.05)
    copied = make_map(count(*_tensors(x[twice], s[twice]), torch.ones(len(twice), dtype=torch.float64)), 0.05)
    a, b = (one(*_tensors(x, s)).numpy() for one in (weighted, copied))
    assert np.abs(a - b).mean() < 0.005 * np.std(x)
    plain = make_map(count(*_tensors(x, s), torch.ones(1_500, dtype=torch.float64)), 0.05)
    assert np.abs(a - plain(*_tensors(x, s)).numpy()).mean() > 0.05 * np.std(x)
    fit = ScoreRepair(random_state=0).fit(x, s, sample_weight=w).transform(x, s)
    assert not np.allclose(fit, ScoreRepair(random_state=0).fit(x, s).transform(x, s))


def _tensors(x, s):
    return torch.from_numpy(x), Sensitive.of(torch.from_numpy(s))


def test_beyond_the_support_it_says_so_and_takes_the_nearest():
    x, s = sample()
    repair = ScoreRepair(random_state=0).fit(x, s)
    with pytest.warns(UserWarning, match="'scores' in 1 of 2 rows, 's' in 1 of 2 rows"):
        far = repair.transform([1e6, 2.0], [40.0, 200.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near = repair.transform([2.0], [s.max()])
    assert far[1] == near[0]
    assert far[0] <= x.max() + 1e-9
    with pytest.raises(ValueError, match="sensitive_features"):
        ScoreRepair().fit(x, np.where(s > 40, "old", "young")).transform([1.0], ["ancient"])


def test_every_argument_changes_something():
    x, s = sample()
    base = ScoreRepair(random_state=0).fit(x, s)
    first = base.transform(x, s)
    for change in ({"amount": 0.5}, {"limit": {"gap": 0.2}}, {"width": 0.3}):
        assert not np.allclose(ScoreRepair(**change, random_state=0).fit(x, s).transform(x, s), first)
    other = ScoreRepair(random_state=1).fit(x, s)
    assert other.left_["gap"].plug_in != base.left_["gap"].plug_in


def test_every_output_says_that_s_is_used():
    x, s = sample()
    repair = ScoreRepair(random_state=0).fit(x, pd.Series(s, name="age"))
    assert "uses age at prediction" in repair.note_
    assert repair.note_ in str(repair)
    assert "fair" not in str(repair).lower()


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"amount": 2.0}, "amount"), ({"width": 0.0}, "width"), ({"limit": {"gap": -1}}, "limit")],
)
def test_wrong_arguments_name_themselves(wrong, name):
    with pytest.raises(ValueError, match=name):
        ScoreRepair(**wrong).fit(*sample(100))


def test_few_or_unequal_rows_are_refused():
    x, s = sample(100)
    with pytest.raises(ValueError, match="at least 50 rows"):
        ScoreRepair().fit(x[:20], s[:20])
    with pytest.raises(ValueError, match="rows like 'scores'"):
        ScoreRepair().fit(x, s[:-1])
    with pytest.raises(ValueError, match="scores"):
        ScoreRepair().fit(np.column_stack([x, x]), s)


def test_interval_covers_what_is_left_of_the_fitted_map():
    # 25 samples: at 95 % fewer than 20 covered happen once in 1,000.
    covered = 0
    big_x, big_s = sample(200_000, seed=99)
    for seed in range(25):
        repair = ScoreRepair(random_state=seed).fit(*sample(1_000, seed=seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            left = repair.transform(big_x, big_s)
        truth = measured(ScoreGap(), left, big_s)
        covered += repair.left_["gap"].low <= truth <= repair.left_["gap"].high
    assert covered >= stats.binom.ppf(0.001, 25, 0.95)


# The command


@pytest.fixture
def file(tmp_path):
    x, s = sample(2_000)
    frame = pd.DataFrame(
        {"age": s, "score": x, "zone": np.where(s > 45, "north", "south"), "id": range(2_000)}
    )
    frame.to_csv(tmp_path / "scores.csv", index=False)
    return tmp_path / "scores.csv"


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow", "feather"])
def test_the_command_writes_what_transform_returns(file, suffix, capsys):
    out = file.parent / f"out.{suffix}"
    args = ["repair", str(file), "--score", "score", "--sensitive", "age", "-o", str(out), "--keep", "id"]
    assert run(args) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "uses age at prediction" in printed
    assert "Left of gap on other rows" in printed
    found, given = read_table(out).to_pandas(), pd.read_csv(file)
    assert list(found) == ["id", "score", "score_repaired"]
    repair = ScoreRepair(random_state=0).fit(given["score"], given[["age"]])
    assert np.allclose(found["score_repaired"], repair.transform(given["score"], given[["age"]]))


def test_cells_that_a_spreadsheet_would_compute_are_named(file, capsys):
    frame = pd.read_csv(file)
    frame["zone"] = np.where(frame["id"] < 3, '=HYPERLINK("x")', "+1 north")
    frame.loc[frame["id"] > 100, "zone"] = "north"
    frame.to_csv(file, index=False)
    args = ["repair", str(file), "--score", "score", "--sensitive", "age", "--keep", "zone", "--keep", "id"]
    assert run([*args, "-o", str(file.parent / "out.csv")]) == 0
    assert "Note: 101 cells of 'zone' begin with" in " ".join(capsys.readouterr().out.split())
    assert run([*args, "-o", str(file.parent / "out.parquet")]) == 0
    assert "begin with" not in capsys.readouterr().out


def test_the_command_reads_files_in_pieces_and_learns_from_another(file, capsys, monkeypatch):
    monkeypatch.setattr(_repair, "_MOST_ROWS", 500)
    other, out = file.parent / "new.parquet", file.parent / "out.parquet"
    x, s = sample(70_000, seed=5)
    pd.DataFrame({"age": s, "score": x, "zone": "north"}).to_parquet(other)  # more than a batch
    args = ["repair", str(other), "--score", "score", "--sensitive", "age", "-o", str(out)]
    assert run([*args, "--fit", str(file), "--amount", "0.5"]) == 0
    text = capsys.readouterr()
    assert "amount 0.5" in " ".join(text.out.split())
    assert "Beyond the rows of fit" in " ".join(text.err.split())
    found = read_table(out).to_pandas()
    assert len(found) == 70_000
    gaps = [measured(GDP(), found[name], s) for name in ("score", "score_repaired")]
    assert gaps[1] == pytest.approx(0.5 * gaps[0], rel=0.2)


def test_the_command_takes_limits_categories_and_weights(file):
    out = file.parent / "out.csv"
    args = [
        "repair",
        str(file),
        "--score",
        "score",
        "--sensitive",
        "age",
        "--sensitive",
        "zone",
        "-o",
        str(out),
    ]
    assert run([*args, "--limit", "gap=0.3", "--weight", "age"]) == 0
    assert run(args) == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--amount", "2"], "--amount must be from 0 to 1"),
        (["--amount", "1", "--limit", "gap=0.1"], "--amount must come without --limit"),
        (["--keep", "score_repaired"], "--keep must not name"),
        (["--limit", "gap=-1"], "--limit"),
    ],
)
def test_the_command_says_what_is_wrong(file, more, words, capsys):
    args = ["repair", str(file), "--score", "score", "--sensitive", "age", "-o", str(file.parent / "o.csv")]
    assert run([*args, *more]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (file.parent / "o.csv").exists()


def test_fit_transform_is_what_rows_that_took_no_part_get():
    x, s = sample(2_000)
    repair = ScoreRepair(random_state=0)
    crossed = repair.fit_transform(x, s)
    assert measured(ScoreGap(), crossed, s) == pytest.approx(repair.left_["gap"].plug_in, rel=1e-3)
    own = repair.transform(x, s)
    assert not np.allclose(crossed, own)
    # The map saw its own rows: it must look better there than the folds do.
    assert measured(GDP(), own, s) < measured(GDP(), crossed, s)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    age = rng.integers(20, 70, 3_000).astype(float)
    x = np.column_stack((age / 15.0 + rng.normal(size=3_000), rng.normal(size=3_000)))
    return x, rng.random(3_000) < 1.0 / (1.0 + np.exp(3.0 - x.sum(axis=1))), age


SMALL = {"n_estimators": 40, "random_state": 0, "backend_params": {"max_depth": 3}}


@pytest.mark.filterwarnings("ignore:Beyond the rows of fit")
def test_repair_is_on_the_frontier_and_judged_by_folds(people):
    x, y, age = people
    trees = FRHSICBoostingClassifier(**SMALL)
    search = FrontierSearch(
        trees,
        limits=[{"gap": 0.05}],
        repair=True,
        rule=lowest_dependence,
        representation=False,
        random_state=0,
    )
    search.fit(x[:2_000], y[:2_000], sensitive_features=age[:2_000], sample_weight=None)
    assert list(search.results_["model"]) == ["lightgbm", "lightgbm", "lightgbm repaired"]
    assert [point.label for point in search.points_][2] == "lightgbm repaired, limit gap 0.05"
    repaired = search.models_[2]
    assert isinstance(repaired, RepairedModel)
    plain, whole = search.points_[0].dependence, search.points_[2].dependence
    assert whole < 0.6 * plain
    # What the point says holds on new rows, and the plain model is the one that was judged.
    moved = repaired.predict_proba(x[2_000:], sensitive_features=age[2_000:])[:, 1]
    assert confidence_interval(moved, age[2_000:], dependence=ScoreGap()).estimate < whole + 0.03
    right = np.mean(repaired.predict(x[2_000:], sensitive_features=age[2_000:]) == y[2_000:])
    assert right == pytest.approx(search.points_[2].performance, abs=0.08)  # three standard errors
    search.choose(lambda points: 2)
    with pytest.raises(ArgumentError, match="be passed: scores are repaired by it"):
        search.predict(x[:5])


@pytest.mark.filterwarnings("ignore:Beyond the rows of fit")
def test_a_budget_of_repair_is_a_share_of_normalised_hsic(people):
    x, y, age = people
    trees = FRHSICBoostingRegressor(**SMALL)
    search = FrontierSearch(trees, budgets=[0.3], repair=True, representation=False, random_state=0)
    search.fit(x, x[:, 0] + y, sensitive_features=age)
    assert search.results_["relative_dependence"].iloc[2] == pytest.approx(0.3, abs=0.01)
    x_held = x[:50]
    found = search.models_[2].predict(x_held, sensitive_features=age[:50])
    assert found.shape == (50,)
    assert not np.allclose(found, search.models_[0].predict(x_held))


def test_repair_says_what_it_cannot_be_beside(people):
    x, y, age = people
    for wrong, options in (
        ("lams", {"lams": [0.0, 1.0]}),
        ("representation", {"on": "representation"}),
    ):
        model = FRHSICClassifier(epochs=1)
        with pytest.raises(ArgumentError, match=f"be False.*{wrong}"):
            FrontierSearch(model, repair=True, **options).fit(x, y, sensitive_features=age)
    three = np.digitize(x[:, 0], [2.0, 4.0])
    with pytest.raises(ArgumentError, match="two classes"):
        FrontierSearch(FRHSICBoostingClassifier(**SMALL), budgets=[0.5], repair=True).fit(
            x, three, sensitive_features=age
        )


def test_frontier_with_repair_from_a_shell(people, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x, y, age = people
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "age": age, "y": np.where(y, "yes", "no")})
    table.to_csv("people.csv", index=False)
    line = "frontier people.csv --target y --sensitive age --limits gap=0.05 -o m.frhsic --rule lowest"
    assert run([*line.split(), "--model", "lightgbm,repair", "--holdout", "0.3"]) == 0
    out = capsys.readouterr().out
    assert "Chosen: lightgbm repaired, limit gap 0.05" in out
    assert "The repaired score uses age at prediction." in out
    assert "Saved the model without penalty to m.frhsic." in out
    predict, repair = (one.split()[1:] for one in out.splitlines() if one.startswith("  frhsic "))
    assert run([part.strip("'").replace("FILE", "people.csv") for part in predict]) == 0
    assert run([part.strip("'") for part in repair]) == 0
    done = pd.read_csv("repaired.csv")
    assert len(done) == 3_000
    assert list(done) == ["score", "score_repaired"]
    for wrong, said in ((["--model", "repair"], "repair alone"), (["--lams", "1"], "not name repair")):
        given = ["--model", "lightgbm,repair", *wrong]
        asked = ["frontier", "people.csv", "--target", "y", "--sensitive", "age", "-o", "n.frhsic"]
        assert run([*asked, *given]) != 0
        assert said in capsys.readouterr().err
