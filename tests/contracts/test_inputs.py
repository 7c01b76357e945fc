"""Inputs that could mislead silently: each is read as it is meant, or is an error that says how to fix it."""

import inspect
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import frhsic.inference
import frhsic.inference.bounds
import frhsic.metrics
from frhsic import baselines
from frhsic.auditing import audit
from frhsic.cli import run
from frhsic.data import check_aligned, suspicious_codes, to_sensitive
from frhsic.dependence import HSIC
from frhsic.estimators import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor, fit_path
from frhsic.inference import conditional_curve, independence_test
from frhsic.kernels import Gaussian
from frhsic.metrics import hsic
from frhsic.penalty import Penalty
from frhsic.selection import FrontierSearch
from frhsic.sketching import HSICSketch
from frhsic.sources import open_source, read_table, write_table
from frhsic.testing import assert_gap_below


def test_the_bare_command_prints_the_whole_help_line_by_line():
    bare, asked = (
        subprocess.run([sys.executable, "-m", "frhsic", *more], capture_output=True, text=True, check=False)
        for more in ([], ["--help"])
    )
    assert bare.returncode == 2
    assert bare.stderr == ""
    assert bare.stdout.split("\n") == asked.stdout.split("\n")
    assert len(bare.stdout.splitlines()) > 15


# ---- text that is mostly numbers ---------------------------------------------------------------------------

RNG = np.random.default_rng(0)
AGES = RNG.integers(18, 90, 2_000)
SCORES = (AGES - 54) ** 2 / 1_296 + RNG.normal(0, 0.5, 2_000)
TEXT = [str(age) for age in AGES]
ONE_UNKNOWN = ["unknown" if row == 17 else text for row, text in enumerate(TEXT)]


@pytest.mark.parametrize(
    "column",
    [
        ONE_UNKNOWN,
        np.array(ONE_UNKNOWN),
        np.array(ONE_UNKNOWN, dtype=object),
        pd.Series(ONE_UNKNOWN),
        pd.Series(ONE_UNKNOWN, dtype="string"),
        pl.Series(ONE_UNKNOWN),
        pa.chunked_array([ONE_UNKNOWN]),
        TEXT,
    ],
)
def test_text_that_is_mostly_numbers_is_an_error_unless_its_kind_is_given(column):
    for call in (
        lambda: to_sensitive(column),
        lambda: audit(SCORES, sensitive_features={"age": column}, random_state=0),
        lambda: independence_test(SCORES, column),
        lambda: hsic(None, SCORES, sensitive_features=column),
        lambda: HSICSketch.like(SCORES, column),
        lambda: FRHSICRegressor(epochs=1).fit(SCORES[:, None], SCORES, sensitive_features=column),
    ):
        with pytest.raises(ValueError, match="mostly numbers"):
            call()
    assert to_sensitive(column, kinds="categorical").kinds == ("categorical",)


def test_the_error_names_at_most_three_short_entries_and_their_rows():
    placeholders = ["n/a", "x" * 50, "unknown", "none", "n/a"]
    with pytest.raises(ValueError, match="mostly numbers") as caught:
        to_sensitive({"age": [*TEXT[:100], *placeholders]})
    message = str(caught.value)
    assert "100 of 105" in message
    assert "'n/a' in row 100" in message
    assert "'" + "x" * 19 + "…' in row 101" in message
    assert "'none'" not in message
    assert "kinds={'age': 'categorical'}" in message
    with pytest.raises(ValueError, match=r"'scores' must hold numbers. Got .* 'n/a' in row 100"):
        conditional_curve([*TEXT[:100], *placeholders], AGES[:105])


@pytest.mark.parametrize(
    "labels",
    [
        ["0", "1"],
        ["18-30", "31-50", "over 50"],
        ["2020-01-01", "2021-01-01", "2022-01-01"],
        ["nan", "inf", "infinity", "1"],
        ["ward 1", "ward 2", "3rd"],
    ],
)
def test_labels_that_are_not_mostly_numbers_are_categories(labels):
    assert to_sensitive(labels * 20).kinds == ("categorical",)


def test_categories_may_be_written_as_numbers():
    assert to_sensitive(pd.Series(["1", "2", "3"] * 9, dtype="category")).kinds == ("categorical",)
    assert abs(hsic(None, ["0", "1", "2"] * 30, sensitive_features=AGES[:90])) < 0.1  # predicted classes


def test_one_unknown_age_does_not_pass_a_gate(tmp_path, capsys):
    file = tmp_path / "scores.csv"
    write_table({"age": ONE_UNKNOWN, "score": SCORES}, file)
    gate = [
        "audit",
        str(file),
        "--score",
        "score",
        "--sensitive",
        "age",
        "--fail-above",
        "normalized_hsic=0.05",
    ]
    assert run(gate) == 2
    error = capsys.readouterr().err
    assert "'unknown' in row 18 of the data" in error
    assert "--missing-values" in error
    assert "--kind age=categorical" in error
    assert run([*gate, "--missing-values", "unknown"]) == 2
    assert "--drop-missing" in capsys.readouterr().err
    assert run([*gate, "--missing-values", "unknown", "--drop-missing"]) == 1
    assert "Left out 1 of 2,000 rows" in capsys.readouterr().err
    assert run([*gate, "--engine", "local"]) == 2
    assert "mostly numbers" in capsys.readouterr().err
    assert run([*gate, "--engine", "local", "--missing-values", "unknown", "--drop-missing"]) == 1
    capsys.readouterr()
    assert run([*gate, "--engine", "local", "--kind", "age=categorical"]) in (0, 1)


# ---- placeholders ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_placeholders_are_missing_in_every_column_of_every_file(tmp_path, suffix):
    file = tmp_path / f"t.{suffix}"
    columns = {"age": [31, -999, 45], "score": [0.5, -999.0, 0.7], "job": ["chef", " unknown", "pilot"]}
    write_table(columns, file)
    wanted = {"age": [31, None, 45], "score": [0.5, None, 0.7], "job": ["chef", None, "pilot"]}
    assert read_table(file, missing_values=["unknown", -999]).to_pydict() == wanted
    source = open_source(file, missing_values=["unknown", -999], allow_missing=True)
    assert pa.Table.from_batches(list(source)).to_pydict() == wanted
    with pytest.raises(ValueError, match="no missing values in column 'age'"):
        list(open_source(file, missing_values=["unknown", "-999"]))


@pytest.mark.parametrize("cell", ["unknown", '"unknown"'])
def test_a_column_with_placeholders_is_read_as_numbers(tmp_path, cell):
    file = tmp_path / "t.csv"
    file.write_text(f"age,score\n31,1\n{cell},2\n45,3\n")
    table = read_table(file, missing_values=["unknown"])
    assert table.column("age").to_pylist() == [31, None, 45]
    assert pa.types.is_integer(table.schema.field("age").type) or pa.types.is_floating(
        table.schema.field("age").type
    )


def test_other_missing_values_are_refused(tmp_path):
    write_table({"age": [31, 45]}, tmp_path / "t.csv")
    for wrong in ("unknown", 3, None):
        with pytest.raises(TypeError, match="'missing_values' must be a list"):
            read_table(tmp_path / "t.csv", missing_values=wrong)
    with pytest.raises(ValueError, match="empty cells are missing anyway"):
        open_source(tmp_path / "t.csv", missing_values=[" "])
    assert run(["audit", "t.csv", "--score", "a", "--sensitive", "b", "--missing-values", "a,,b"]) == 2


def test_train_reads_placeholders_as_missing(tmp_path, capsys):
    people = {"age": ONE_UNKNOWN, "hours": np.where(AGES % 7 == 0, -999, AGES), "y": SCORES > 0.4}
    write_table(people, tmp_path / "p.csv")
    train = f"train {tmp_path}/p.csv --target y --sensitive age -o {tmp_path}/m.frhsic --epochs 1 --lam 0"
    assert run(train.split()) == 2
    assert "mostly numbers" in capsys.readouterr().err
    assert run([*train.split(), "--missing-values", "unknown,-999", "--drop-missing"]) == 0
    assert "Left out 1 of 2,000 rows" in capsys.readouterr().err


# ---- suspicious codes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([*AGES, *[999] * 5], "999 "),
        ([*AGES, *[-999] * 20], "-999 "),
        ([*AGES, *[-1] * 20, *[998] * 3, *[999] * 3], "999, 998 and -1 in 26 rows"),
        ([*AGES, *[-1] * 20], "-1 in 20 rows"),
        ([*AGES, *[-9] * 3, *[-1] * 3], "-9 and -1 in fewer than 10 rows"),
        ([*AGES, *[99] * 40], "99 in 40 rows"),
        ([*AGES, *[-5] * 20], None),  # no code
        ([*AGES, *[-1] * 4], None),
        ([*AGES, *[-1] * len(AGES)], None),  # too many for a code
        ([*RNG.integers(-3, 90, 1_000)], None),  # other negative values
        ([*np.arange(1, 99).repeat(9), *[99] * 60], None),  # the last of a scale, without a gap
        ([*AGES, *[99] * 5], None),  # no more than other ages have
        ([*[0, 1] * 50, *[99] * 5], "99 "),
        ([*AGES, 99, *[999] * 5], "999 "),
        ([*RNG.uniform(size=100), *[-9] * 5], "-9 "),
        ([*np.arange(18, 91).repeat(9)], None),
        ([*np.arange(18, 100).repeat(9)], None),
        ([*AGES, *[999] * 4], None),
        ([-1, 1] * 50, None),
        ([-1, 0, 1] * 50, None),
        ([*RNG.normal(size=1_000)], None),
        ([*RNG.lognormal(10, 1, size=1_000).round()], None),
        ([*range(1, 11)] * 20, None),
        ([7.0] * 50, None),
    ],
)
def test_codes_heaped_far_away_are_noted(values, codes):
    note = suspicious_codes(torch.tensor(np.array(values, dtype=float)), "column 'age'")
    assert (note is None) == (codes is None)
    assert note is None or note.startswith(codes)


def test_the_note_on_codes_is_in_the_words_of_the_command_line_too():
    note = suspicious_codes(torch.tensor([*map(float, AGES), *[-1.0] * 20]), "column 'age'")
    assert "(missing_values=['-1'] in Python, --missing-values=-1 at the command line)" in note


def test_an_audit_notes_codes_in_score_sensitive_columns_and_outcome():
    n = 200
    ages, scores, outcome = (np.array(x[:n], dtype=float) for x in (AGES, SCORES, AGES % 2))
    plain = audit(scores, sensitive_features={"age": ages}, y_true=outcome, random_state=0)
    assert not any("may stand for no value" in note for note in plain.notes)
    ages[:9], scores[9:18], outcome[18:27] = 999, -99, 99
    found = audit(scores, sensitive_features={"age": ages}, y_true=outcome, random_state=0)
    notes = [note for note in found.notes if "may stand for no value" in note]
    assert [note.split(" in ")[0] for note in notes] == ["-99", "999", "99"]
    assert [note.split("rows of ")[1].split(" may")[0] for note in notes] == [
        "the score",
        "column 'age'",
        "the outcome",
    ]


# ---- indexes in another order ------------------------------------------------------------------------------

# Arguments with one entry for each row, in the order in which functions name them.
ROW_ARGUMENTS = (
    "scores",
    "contributions",
    "y_pred",
    "X",
    "z",
    "s",
    "sensitive_features",
    "y",
    "y_true",
    "sample_weight",
    "weights",
    "given",
    "groups",
    "ids",
    "new",
)


def entry_points():
    """List everything public that pairs rows of one argument with rows of another."""
    found = {
        "audit": audit,
        "assert_gap_below": partial(assert_gap_below, limit=1.0),
        "HSICSketch.like": HSICSketch.like,
        "fit_path": partial(fit_path, FRHSICClassifier()),
    }
    for module in (frhsic.inference, frhsic.inference.bounds, frhsic.metrics):
        found |= {name: getattr(module, name) for name in module.__all__}
    for made in (
        HSICSketch(Gaussian(1.0), Gaussian(20.0)),
        FRHSICClassifier(lam=0, epochs=1),
        FRHSICRegressor(lam=0, epochs=1),
        FRHSICEncoder(lam=0, epochs=1),
        FrontierSearch(FRHSICRegressor(epochs=1)),
        baselines.Residualizer(),
    ):
        for name in ("update", "fit", "partial_fit", "score"):
            if hasattr(type(made), name):
                found[f"{type(made).__name__}.{name}"] = getattr(made, name)
    calls = []
    for name, call in found.items():
        if inspect.isclass(call):
            continue
        parameters = inspect.signature(call).parameters
        rows = [one for one in ROW_ARGUMENTS if one in parameters]
        ignored = {"y"} if name in ("Residualizer.fit", "FRHSICEncoder.score") else set()
        ignored |= {"y_true"} if "y_pred" in rows else set()  # for scorers
        rows = [one for one in rows if one not in ignored]
        calls += [(name, call, rows[0], other) for other in rows[1:]]
    return calls


ENTRY_POINTS = entry_points()


def test_every_part_of_the_public_api_is_among_the_entry_points():
    names = {name for name, *_ in ENTRY_POINTS}
    assert len(names) >= 24
    assert {"audit", "independence_test", "certify", "kernel_hgr", "HSICSketch.update"} <= names


@pytest.mark.parametrize(
    ("call", "first", "other"), [pytest.param(*rest, id=f"{name}-{rest[2]}") for name, *rest in ENTRY_POINTS]
)
def test_indexes_with_the_same_labels_in_another_order_are_an_error(call, first, other):
    table = pd.DataFrame({"a": AGES[:60] / 90.0, "b": AGES[60:120] % 2}, index=np.arange(60) + 7)
    arguments = {first: table[["a"]] if first == "X" else table["a"], other: table["b"].iloc[::-1]}
    if "s" in inspect.signature(call).parameters and other != "s":
        arguments["s"] = table["a"].to_numpy()
    elif "sensitive_features" in inspect.signature(call).parameters and other != "sensitive_features":
        arguments["sensitive_features"] = table["a"].to_numpy()
    given = inspect.signature(call).parameters.get("given")
    if given is not None and given.default is inspect.Parameter.empty and other != "given":
        arguments["given"] = {"x": table["a"].to_numpy()}
    if "region" in inspect.signature(call).parameters:
        arguments["region"] = table["b"].to_numpy() == 1
    for name in ("y", "y_true"):
        if name in inspect.signature(call).parameters and other != name and call is not audit:
            arguments[name] = table["b"].to_numpy()
    more = {"tolerance": 0.1, "lams": [0.0], "classes": [0, 1]}
    more = {name: more[name] for name in more if name in inspect.signature(call).parameters}
    if first == "y_pred":
        arguments["y_true"] = None
    with pytest.raises(ValueError, match=f"'{other}' must have its rows in the order of '{first}'") as caught:
        call(**arguments, **more)
    assert f"'{other}.loc[{first}.index]'" in str(caught.value)
    assert "'.to_numpy()'" in str(caught.value)


def test_shuffled_rows_do_not_hide_dependence():
    score = pd.Series(SCORES[:300])
    age = pd.Series(AGES[:300]).sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match="'s' must have its rows in the order of 'scores'"):
        independence_test(score, age, random_state=0)
    assert independence_test(score, age.loc[score.index], random_state=0).pvalue == 0.001
    assert independence_test(score, age.to_numpy(), random_state=0).pvalue > 0.05


def test_what_is_paired_by_position():
    a = pd.Series([1.0, 2.0, 3.0], index=["p", "q", "r"])
    check_aligned(a=a, b=a.copy())
    check_aligned(a=a, b=a.reset_index(drop=True))  # other labels
    check_aligned(a=a, b=a.iloc[:2], c=None, d=[1, 2, 3], e=pl.Series([1, 2, 3]), f=np.arange(3))
    check_aligned(a=a, b=a.rename({"r": "t"}))
    twice = pd.Series([1.0, 2.0, 3.0], index=["p", "p", "q"])
    check_aligned(a=twice, b=twice.copy())
    for other in (twice.iloc[::-1], twice.iloc[::-1].to_frame(), {"x": [1, 2, 3], "y": twice.iloc[::-1]}):
        with pytest.raises(ValueError, match="'b' must have its rows in the order of 'a'"):
            check_aligned(a=twice, b=other)
    keys = pd.MultiIndex.from_tuples([("x", 1), ("x", 2), ("y", 1)])
    with pytest.raises(ValueError, match="'c' must have its rows in the order of 'b'"):
        check_aligned(a=a, b=pd.Series(range(3), keys), c=pd.Series(range(3), keys[::-1]))


def test_scores_of_one_sample_and_ages_of_another_are_an_error():
    """The same 800 people: the gap was .04 where it is .19."""
    table = pd.DataFrame({"score": SCORES[:800], "age": AGES[:800]}, index=np.arange(800) + 1)
    one, other = table.sample(400, random_state=1), table.sample(400, random_state=2)
    shared = one.index.isin(other.index).sum()
    with pytest.raises(ValueError, match=f"shares {shared} of its 400 labels with it, at other positions"):
        audit(one.score, sensitive_features={"age": other.age}, random_state=0)
    check_aligned(scores=one.score, s=other.age.to_numpy())


INDEXES_OF_400 = {
    "RangeIndex": pd.RangeIndex(400),
    "int32": pd.Index(range(400), dtype="int32"),
    "Int64": pd.Index(range(400), dtype="Int64"),
    "float": pd.Index(np.arange(400.0)),
    "object": pd.Index(range(400), dtype=object),
}


@pytest.mark.parametrize("index", INDEXES_OF_400.values(), ids=INDEXES_OF_400.keys())
def test_predictions_in_a_new_series_go_with_any_sample(index):
    sample = pd.Series(AGES[:800]).sample(400, random_state=1)
    predictions = pd.Series(SCORES[:400], index=index)
    check_aligned(scores=predictions, s=sample)
    check_aligned(s=sample, scores=predictions)
    later = pd.Series(SCORES[:400], index=range(1, 401))
    check_aligned(scores=predictions, s=later)
    with pytest.raises(ValueError, match=r"'later' must have .* shares \d+ of its 400 labels with it"):
        check_aligned(s=sample, scores=predictions, later=later)


def test_labels_of_any_kind_are_compared_at_their_positions():
    a = pd.Series(range(4), index=list("pqrs"))
    check_aligned(a=a, b=pd.Series(range(4), index=list("pqxy")))  # shared, where they are
    check_aligned(a=a, b=pd.Series(range(4), index=list("wxyz")))
    check_aligned(a=a, b=pd.Series(range(4), index=[np.nan, 1.0, 2.0, 7.0]))
    keys = pd.MultiIndex.from_product([["x", "y"], [1, 2]])
    check_aligned(a=a, b=pd.Series(range(4), index=keys))
    check_aligned(a=pd.Series(range(4), index=[None, 1, 2, 3]), b=pd.Series(range(4), index=[9, 1, None, 3]))
    for one, other in (
        (list("pqrs"), list("xpyz")),
        (keys, pd.MultiIndex.from_tuples([("x", 2), ("z", 1), ("z", 2), ("z", 3)])),
        (pd.CategoricalIndex(list("pqrs")), list("spxy")),
        (pd.date_range("2020", periods=4), pd.date_range("2020-01-02", periods=4)),
        ([1, 1, 2, 3], [1, 2, 2, 5]),
        ([5, 6, 7, 8], [8.0, 9.0, 10.0, 11.0]),
    ):
        with pytest.raises(ValueError, match=r"shares \d of its 4 labels with it, at other positions"):
            check_aligned(a=pd.Series(range(4), index=one), b=pd.Series(range(4), index=other))


def test_every_column_of_a_dict_is_compared_with_its_own_index():
    new = pd.Series(range(3))
    known = pd.Series(range(3), index=[7, 8, 9])
    with pytest.raises(ValueError, match="'s' must have its rows in the order of 'scores'"):
        check_aligned(scores={"new": new, "known": known}, s=known.rename({7: 8, 8: 10}))


def test_a_million_labels_take_about_a_second():
    labels = np.random.default_rng(0).permutation(2_000_000)
    one, other = (
        pd.Series(np.zeros(1_000_000), index=part) for part in (labels[:1_000_000], labels[1_000_000:])
    )
    start = time.process_time()
    check_aligned(one=one, other=other)
    assert time.process_time() - start < 2.0


# ---- given -------------------------------------------------------------------------------------------------


def test_given_is_refused_where_most_rows_would_be_left_out():
    income = np.where(np.arange(2_000) < 14, 0.0, np.random.default_rng(1).normal(size=2_000))
    for call in (
        lambda: independence_test(SCORES, AGES, given=income),
        lambda: independence_test(SCORES, AGES, each=True, given=income),
        lambda: hsic(None, SCORES, sensitive_features=AGES, given=income),
    ):
        with pytest.raises(ValueError, match=r"'given' must be labels .* 1,986 of 2,000 rows .* few bins"):
            call()
    few = np.where(np.arange(600) < 400, "a", np.arange(600).astype(str))  # a third is left out, with a note
    result = independence_test(SCORES[:600], AGES[:600], given=few, n_permutations=19, random_state=0)
    assert result.n == 400
    assert "200 rows" in result.notes[0]
    sketch = HSICSketch(Gaussian(1.0), Gaussian(20.0), n_features=(16, 16))
    sketch.update(SCORES[:60], AGES[:60], given=np.where(np.arange(60) < 20, 0, np.arange(60) // 5))
    with pytest.raises(ValueError, match="40 of 60 rows would be left out"):
        independence_test(sketch, given=sketch.labels)


# ---- sparse X, missing values in X, few rows ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "form"),
    [(FRHSICClassifier, f"{form}_array") for form in ("csr", "csc", "coo", "dok")]
    + [(FRHSICClassifier, "lil_matrix"), (FRHSICRegressor, "csr_matrix"), (FRHSICEncoder, "csr_matrix")],
)
def test_sparse_rows_give_what_dense_rows_give(make, form, monkeypatch):
    monkeypatch.setattr("frhsic.estimators._base._CHUNK", 32)
    jobs = np.random.default_rng(0).choice(list("abcde"), (100, 2))
    sparse = getattr(scipy.sparse, form)(OneHotEncoder().fit_transform(jobs))
    dense, y, age = sparse.toarray(), AGES[:100] % 2, AGES[:100]
    fitted = [
        make(lam=1.0, epochs=2, random_state=0).fit(X, y, sensitive_features=age) for X in (sparse, dense)
    ]
    for name in ("predict", "predict_proba", "decision_function", "transform"):
        if hasattr(make, name):
            one, other = (getattr(model, name)(X) for model in fitted for X in (sparse, dense)[:1])
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(one, getattr(fitted[0], name)(dense))
    assert fitted[0].score(sparse, y) == fitted[1].score(dense, y)
    parts = {"classes": [0, 1]} if make is not FRHSICRegressor else {}
    learned = [
        make(lam=1.0, random_state=0).partial_fit(X, y, sensitive_features=age, **parts).transform(dense)
        for X in (sparse, dense)
    ]
    np.testing.assert_array_equal(*learned)


def test_a_pipeline_with_a_one_hot_encoder_as_it_comes_fits():
    jobs = np.random.default_rng(0).choice(list("abcde"), (100, 2))
    model = make_pipeline(OneHotEncoder(), FRHSICClassifier(lam=0, epochs=1))
    assert model.fit(jobs, AGES[:100] % 2).predict(jobs).shape == (100,)


def test_a_sparse_matrix_that_would_fill_the_memory_is_refused():
    wide = scipy.sparse.random_array(
        (2_000, 600_000), density=1e-7, format="csr", rng=np.random.default_rng(0)
    )
    with pytest.raises(ValueError, match=r"'X' must take at most 8 GB .* \(2000, 600000\), which takes 9 GB"):
        FRHSICClassifier(lam=0).fit(wide, AGES % 2)


@pytest.mark.parametrize("make", [FRHSICClassifier, FRHSICRegressor, FRHSICEncoder])
def test_missing_values_in_x_name_the_table_encoder(make):
    X = np.where(np.arange(300) == 7, np.nan, 1.0).reshape(100, 3)
    with pytest.raises(
        ValueError, match=r"'X' must have no missing values.*frhsic\.TableEncoder fills them\.$"
    ):
        make(lam=0).fit(X, AGES[:100] % 2)


def test_a_penalty_on_five_rows_warns_that_it_acts_on_chance():
    X, y, age = AGES[:15].reshape(5, 3) / 90, np.arange(5) % 2, AGES[:5]
    with pytest.warns(UserWarning, match="'X' has 5 rows to train on: .* mostly chance"):
        FRHSICClassifier(lam=1.0, epochs=1).fit(X, y, sensitive_features=age)
    FRHSICClassifier(lam=0, epochs=1).fit(X, y)
    message = r"'y' must have 11 rows of every label .* Got a label of 2 rows\. Pass more rows"
    with pytest.warns(UserWarning, match="mostly chance"), pytest.raises(ValueError, match=message):
        FRHSICClassifier(penalty=Penalty(HSIC(), given="y"), lam=1.0).fit(X, y, sensitive_features=age)


# ---- separators and encodings ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "income"),
    [
        ("income;score\n1.234,56;0,5\n987,10;0,7\n12.000,00;0,9\n", [1234.56, 987.1, 12000]),
        ("income;score\n1.234;0,5\n987;0,7\n12.000;0,9\n", [1234, 987, 12000]),
        ("income;score\n1,234.56;0.5\n987.10;0.7\n12,000.00;0.9\n", [1234.56, 987.1, 12000]),
        ("income;score\n1,234;0.5\n987;0.7\n12,000;0.9\n", [1234, 987, 12000]),
        ("income\tscore\n1.234.567,5\t1\n987,5\t2\n1.000,5\t3\n", [1234567.5, 987.5, 1000.5]),
        ("income;score\n1'234.5;0.5\n987.1;0.7\n1'000.0;0.9\n", [1234.5, 987.1, 1000]),
        ("income;score\n1 234,5;0,5\n987,1;0,7\n1 000,0;0,9\n", [1234.5, 987.1, 1000]),
        ('income,score\n"1,234.5",0.5\n"987.1",0.7\n"1,000.0",0.9\n', [1234.5, 987.1, 1000]),
        ('income,score\n"1,234",0.5\n"987",0.7\n"1,000",0.9\n', [1234, 987, 1000]),
        ('income,score\n"0,53",1\n"1,2",2\n"7,0",3\n', [0.53, 1.2, 7]),
        ("income;score\n1.234;1\n2.345;2\n9.876;3\n", [1.234, 2.345, 9.876]),
        ("income;score\n0.234;1\n2;2\n9.876;3\n", [0.234, 2, 9.876]),
    ],
)
def test_signs_between_thousands_are_read_as_such(tmp_path, text, income):
    (tmp_path / "t.csv").write_text(text)
    assert read_table(tmp_path / "t.csv").column("income").to_pylist() == income


@pytest.mark.parametrize("sign", [".", ","])
def test_thousands_that_may_be_decimals_are_an_error_that_names_a_cell(tmp_path, sign):
    (tmp_path / "t.csv").write_text(f"income;score\n1{sign}234;1\n987;2\n12{sign}000;3\n")
    for read in (read_table, open_source):
        with pytest.raises(ValueError, match=rf"in column 'income'\. Got '1\{sign}234' beside whole numbers"):
            read(tmp_path / "t.csv")
        read(tmp_path / "t.csv", columns=["score"])


def test_text_with_signs_in_it_stays_text(tmp_path):
    (tmp_path / "t.csv").write_text("a;b;c\nx.y;555 123;0,5\n1.234,5;555 124;0,7\n")
    table = read_table(tmp_path / "t.csv")
    assert table.column("a").to_pylist() == ["x.y", "1.234,5"]
    assert table.column("b").to_pylist() == ["555 123", "555 124"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_files_with_a_byte_order_mark_are_read(tmp_path, encoding):
    (tmp_path / "t.csv").write_bytes("\ufeffage;score\n31;0,5\n45;0,7\n".encode(encoding))
    wanted = {"age": [31, 45], "score": [0.5, 0.7]}
    assert read_table(tmp_path / "t.csv").to_pydict() == wanted
    assert pa.Table.from_batches(list(open_source(tmp_path / "t.csv"))).to_pydict() == wanted
