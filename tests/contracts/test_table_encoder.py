"""TableEncoder: one matrix for one table, whatever library holds it and however it was stored between."""

from __future__ import annotations

import copy
import datetime
import json
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from frhsic.estimators._table import TableEncoder

COLUMNS = {
    "age": [20.5, None, 60.0, 35.25, 41.0, None],
    "job": ["nurse", "chef", None, "pilot", "chef", "chef"],
    "rooms": [1, 2, 3, 3, 2, 9],
    "member": [True, False, None, True, True, False],
    "town": ["Rome", "Oslo", "Rome", "Rome", "Oslo", "Lima"],
    "zone": [7, 7, 7, 7, 7, 7],
}
# Unknown labels, a label missing where none was, out of range, and the constant no longer constant.
NEW = {
    "zone": [8, 7],
    "town": [None, "Bern"],
    "member": [None, True],
    "rooms": [None, -4],
    "job": [None, "baker"],
    "age": [None, 1000.0],
}
FRAMES = {
    "pandas": pd.DataFrame,
    "pandas nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
    "record batch": lambda columns: pa.RecordBatch.from_pydict(columns),
    "dict": dict,
}


def plain(encoder: TableEncoder) -> dict:
    return json.loads(json.dumps(encoder.get_state(), allow_nan=False))


# Numbers


@pytest.mark.parametrize(("scaling", "scaler"), [("standard", StandardScaler()), ("minmax", MinMaxScaler())])
def test_numbers_and_labels_agree_with_the_column_transformer(scaling, scaler):
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {"a": rng.normal(5, 3, n), "b": rng.integers(0, 40, n), "c": rng.exponential(1e5, n)}
    )
    frame["d"] = rng.choice(["x", "yy", "ä", "Z", ""], n)
    frame["e"] = rng.choice(["u", "v"], n)
    frame.loc[rng.random(n) < 0.2, ["a"]] = np.nan
    frame.loc[rng.random(n) < 0.1, ["c", "d"]] = None
    train, test = frame[:150], frame[150:].copy()
    test.iloc[3, 3] = "unknown"
    # sklearn sorts a missing label behind the others, as we do.
    twin = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), scaler), ["a", "b", "c"]),
            ("labels", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["d", "e"]),
        ]
    ).fit(train)
    encoder = TableEncoder(scaling=scaling).fit(train)
    for part in (train, test):
        np.testing.assert_allclose(encoder.transform(part), twin.transform(part), rtol=1e-12, atol=1e-12)


def test_no_scaling_leaves_numbers_as_they_are_and_imputes_the_median():
    encoded = TableEncoder(scaling="none").fit_transform({"a": [3.0, None, 8.0, 4.0], "c": [7, 7, 7, 7]})
    np.testing.assert_array_equal(encoded, [[3, 7], [4, 7], [8, 7], [4, 7]])


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
@pytest.mark.parametrize("value", [0.1, 0.0, -1e150, 3, True])
def test_a_constant_column_is_zero_for_good(scaling, value):
    encoder = TableEncoder(scaling=scaling).fit({"a": [value] * 7})
    np.testing.assert_array_equal(encoder.transform({"a": [value, 12, None]}), np.zeros((3, 1)))


@pytest.mark.parametrize("scaling", ["standard", "minmax"])
@pytest.mark.parametrize("values", [[0, 5e-324], [0, 1e-170, 2e-170], [1e150, -1e150], [1, 1 + 2**-52]])
def test_extreme_scales_stay_finite(scaling, values):
    assert np.isfinite(TableEncoder(scaling=scaling).fit_transform({"a": values})).all()


def test_a_number_that_leaves_float64_after_scaling_is_refused():
    encoder = TableEncoder(scaling="minmax").fit({"a": [0, 1e-200]})
    with pytest.raises(ValueError, match="in column 'a'"):
        encoder.transform({"a": [1e140]})


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(
    st.lists(st.one_of(st.floats(-1e6, 1e6), st.none()), min_size=2, max_size=30).filter(
        lambda x: len(set(x) - {None}) > 1 and np.ptp([v for v in x if v is not None]) > 1e-3
    )
)
def test_standard_columns_have_mean_zero_and_variance_one(values):
    x = TableEncoder().fit_transform({"a": values})[:, 0]
    assert abs(x.mean()) < 1e-5
    assert abs(x.std() - 1) < 1e-5


@pytest.mark.parametrize(
    "numbers",
    [
        [Decimal("1.5"), None, Decimal("4")],
        pd.array([1, None, 4], dtype="Int64"),
        pl.Series([1.5, None, 4.0], dtype=pl.Decimal(10, 2)),
        pl.Series([True, None, False]),
        pa.array([1, None, 4], type=pa.uint8()),
        np.array([1, np.nan, 4], dtype=object),
        np.array([1, np.nan, 4], dtype=np.float16),
    ],
    ids=str,
)
def test_every_number_type_may_have_gaps(numbers):
    encoded = TableEncoder(scaling="none").fit_transform({"a": numbers})
    assert encoded.shape == (3, 1)
    assert encoded[1] == (encoded[0] + encoded[2]) / 2


def test_a_boolean_is_the_number_0_or_1():
    encoder = TableEncoder(scaling="none").fit({"a": [True, False, True]})
    np.testing.assert_array_equal(encoder.transform({"a": [1, 0]}), encoder.transform({"a": [True, False]}))


# Labels


def test_unknown_category_becomes_zeros():
    encoder = TableEncoder().fit({"job": ["b", "a", "b"]})
    np.testing.assert_array_equal(
        encoder.transform({"job": ["a", "c", "b", "A"]}), [[1, 0], [0, 0], [0, 1], [0, 0]]
    )


def test_a_missing_label_has_a_column_only_if_training_had_gaps():
    for gap in (None, np.nan, pd.NA, pd.NaT):
        labels = pd.Series(["b", "a", gap], dtype=object)
        with_gaps = TableEncoder().fit(pd.DataFrame({"job": labels}))
        assert with_gaps.get_feature_names_out().tolist() == ["job_a", "job_b", "job_missing"]
        np.testing.assert_array_equal(with_gaps.transform({"job": labels}), [[0, 1, 0], [1, 0, 0], [0, 0, 1]])
        without = TableEncoder().fit({"job": ["b", "a"]})
        np.testing.assert_array_equal(without.transform({"job": labels}), [[0, 1], [1, 0], [0, 0]])


def test_a_column_that_is_all_missing_in_transform_is_no_error():
    encoder = TableEncoder(scaling="none").fit(COLUMNS)
    for gaps in (
        [None, None],
        [np.nan, np.nan],
        pl.Series([None, None]),
        pa.nulls(2),
        pa.nulls(2, pa.string()),
    ):
        encoded = encoder.transform(dict.fromkeys(COLUMNS, gaps))
        np.testing.assert_array_equal(encoded[0], [38.125, 0, 0, 0, 1, 2.5, 1, 0, 0, 0, 7])


def test_categories_that_are_numbers_stay_labels_with_and_without_gaps():
    encoder = TableEncoder().fit(pd.DataFrame({"zone": pd.Categorical([2, 10, 2])}))
    assert encoder.get_feature_names_out().tolist() == ["zone_10", "zone_2"]
    expected = [[1, 0], [0, 0], [0, 1]]
    np.testing.assert_array_equal(encoder.transform({"zone": pd.Categorical([10, None, 2])}), expected)
    np.testing.assert_array_equal(encoder.transform({"zone": ["10", None, "2"]}), expected)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(["b", None, "a"], dtype="category"),
        pl.Series(["b", None, "a"], dtype=pl.Categorical),
        pl.Series(["b", None, "a"], dtype=pl.Enum(["b", "a", "unused"])),
        pa.array(["b", None, "a"]).dictionary_encode(),
        pa.array(["b", None, "a"], type=pa.large_string()),
        pd.array(["b", None, "a"], dtype="string"),
        np.array(["b", None, "a"], dtype=object),
    ],
    ids=lambda v: f"{type(v).__module__}-{v.dtype if hasattr(v, 'dtype') else v.type}",
)
def test_every_label_type_gives_the_same_sorted_categories(labels):
    encoder = TableEncoder().fit({"job": labels})
    assert encoder.get_state()["columns"] == [
        {"kind": "categorical", "name": "job", "categories": ["a", "b"], "missing": True}
    ]


def test_columns_stay_in_the_order_of_the_frame():
    assert TableEncoder().fit(COLUMNS).get_feature_names_out().tolist() == [
        "age",
        *("job_chef", "job_nurse", "job_pilot", "job_missing"),
        "rooms",
        "member",
        *("town_Lima", "town_Oslo", "town_Rome"),
        "zone",
    ]


def test_feature_names_are_distinct_even_where_they_would_clash():
    encoder = TableEncoder().fit({"a": ["missing", "b", None], "a_b": [1, 2, 3], "a_missing": [1, 2, 3]})
    names = encoder.get_feature_names_out().tolist()
    assert names == ["a_b", "a_missing", "a_missing_", "a_b_", "a_missing__"]


# Tables


@pytest.mark.parametrize("read", FRAMES.values(), ids=FRAMES)
def test_every_frame_library_gives_identical_numbers(read):
    reference = TableEncoder().fit(COLUMNS)
    encoder = TableEncoder().fit(read(COLUMNS))
    assert encoder.get_state() == reference.get_state()
    np.testing.assert_array_equal(encoder.transform(COLUMNS), reference.transform(read(COLUMNS)), strict=True)
    np.testing.assert_array_equal(encoder.transform(NEW), reference.transform(read(NEW)), strict=True)


def test_reordered_columns_give_the_same_matrix():
    frame = pd.DataFrame(COLUMNS)
    encoder = TableEncoder().fit(frame)
    np.testing.assert_array_equal(encoder.transform(frame), encoder.transform(frame[sorted(frame)]))


def test_arrays_and_frames_give_the_same_matrix_and_leave_the_input_alone():
    X = np.random.default_rng(1).normal(size=(30, 3))
    X[::4, 1] = np.nan
    before = X.copy()
    X.setflags(write=False)
    encoded = TableEncoder().fit_transform(X)
    for other in (X.tolist(), np.asfortranarray(X), X.astype(object), pd.DataFrame(X), pl.DataFrame(X)):
        np.testing.assert_array_equal(TableEncoder().fit_transform(other), encoded)
    np.testing.assert_array_equal(X, before)


def test_objects_are_read_column_by_column():
    rows = [[1, "a", None], [2, None, True], [4, "b", False]]
    for X in (rows, np.array(rows, dtype=object)):
        encoder = TableEncoder(scaling="none").fit(X)
        assert encoder.get_feature_names_out().tolist() == ["x0", "x1_a", "x1_b", "x1_missing", "x2"]
        assert encoder.transform(X)[0].tolist() == [1, 1, 0, 0, 0.5]


def test_integer_column_names_become_text_and_are_matched():
    frame = pd.DataFrame([[1.0, 10.0], [2.0, 30.0]])
    encoder = TableEncoder().fit(frame)
    assert encoder.feature_names_in_.tolist() == encoder.get_feature_names_out().tolist() == ["0", "1"]
    np.testing.assert_array_equal(encoder.transform(frame[[1, 0]]), encoder.transform(frame))


def test_feature_names_in_are_forgotten_when_fitted_again_without_names():
    encoder = TableEncoder().fit({"a": [1, 2]})
    assert encoder.feature_names_in_.tolist() == ["a"]
    encoder.fit([[1], [2]])
    assert "feature_names_in_" not in vars(encoder)
    assert encoder.transform(pd.DataFrame({"b": [1, 2]})).tolist() == [[-1], [1]]
    assert encoder.get_feature_names_out(["z"]).tolist() == ["z"]


def test_input_features_must_fit_the_columns():
    with pytest.raises(ValueError, match="'input_features' must be the names in 'fit'"):
        TableEncoder().fit({"a": [1, 2]}).get_feature_names_out(["b"])
    with pytest.raises(ValueError, match="'input_features' must name every column"):
        TableEncoder().fit([[1], [2]]).get_feature_names_out(["a", "b"])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_set_output_names_the_columns(library):
    frame = pd.DataFrame(COLUMNS, index=list("uvwxyz")) if library == "pandas" else pl.DataFrame(COLUMNS)
    encoder = TableEncoder().set_output(transform=library)
    out = encoder.fit_transform(frame)
    assert type(out) is type(frame)
    assert list(out.columns) == encoder.get_feature_names_out().tolist()
    np.testing.assert_array_equal(out.to_numpy(), TableEncoder().fit_transform(COLUMNS))
    if library == "pandas":
        assert out.index.tolist() == frame.index.tolist()


@pytest.mark.parametrize(
    ("estimator", "check"),
    list(estimator_checks_generator(TableEncoder(), mark=None)),
    ids=lambda v: getattr(getattr(v, "func", None), "__name__", ""),
)
def test_the_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


# Refusals


@pytest.mark.parametrize(
    ("column", "cure"),
    [
        ([None, None, None], "Drop the column"),
        ([np.nan, np.nan, np.nan], "Drop the column"),
        (pl.Series([None, None, None], dtype=pl.String), "Drop the column"),
        ([1.0, np.inf, 2.0], "Drop or replace"),
        ([1.0, 1e200, 2.0], "Rescale"),
        ([1, "word", 2], "Convert the entries"),
        (["word", 1, None], "Convert the entries"),
        ([b"word", b"b", b"c"], "strings"),
        (pl.Series([b"word", b"b", b"c"]), "string"),
        ([datetime.date(2020, 1, 1)] * 3, "Convert them to a number"),
        (pd.to_datetime(["2020-01-01", None, "2020-01-02"]), "Convert them to a number"),
        (pd.Series(pd.to_timedelta([1, 2, 3])), "Convert them to a number"),
        (pl.Series([datetime.time(1)] * 3), "Convert them to a number"),
        (pl.Series([[1], [2], [3]]), "Unnest"),
        (pl.Series([{"word": 1}] * 3), "Unnest"),
        ([1j, 2, 3], "two columns"),
        ([{"word": 1}, None, {"word": 2}], "string"),
        ([f"word{i}" for i in range(3)], "raise 'max_categories'"),
    ],
    ids=lambda v: "" if isinstance(v, str) else None,
)
def test_what_cannot_be_encoded_is_refused_by_name_with_a_cure_and_without_values(column, cure):
    frame = pl.DataFrame if isinstance(column, pl.Series) else pd.DataFrame
    table = {"fine": [1, 2, 3], "odd one": column}
    with pytest.raises((ValueError, TypeError), match=cure) as error:
        TableEncoder(max_categories=2).fit(table if isinstance(column, list) else frame(table))
    assert "'X' must" in str(error.value)
    assert "'odd one'" in str(error.value)
    assert "word" not in str(error.value)
    assert error.value.__cause__ is None


def test_messages_count_rows_with_gaps_before_them():
    for column in ([None, "x", None, 5], [np.nan, datetime.date(2020, 1, 1), None]):
        with pytest.raises(ValueError, match="in row 1"):
            TableEncoder().fit({"a": column})


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        ([1.0, 2.0], ValueError, "two dimensions"),
        (np.ones(3), ValueError, "two dimensions"),
        (pd.Series([1.0, 2.0], name="a"), ValueError, "two dimensions"),
        (pl.Series("a", [1.0, 2.0]), ValueError, "two dimensions"),
        (pa.array([1.0, 2.0]), ValueError, "two dimensions"),
        (pd.Index([1.0, 2.0]), ValueError, "two dimensions"),
        (np.ones((2, 2, 2)), ValueError, "one or two dimensions"),
        (np.ones((0, 2)), ValueError, "at least 1 row"),
        (pl.DataFrame({"a": []}), ValueError, "at least 1 row"),
        (np.ones((2, 0)), ValueError, "columns"),
        ({}, ValueError, "at least one column"),
        (pd.DataFrame(), ValueError, "at least one column"),
        ({"a": [1, 2], "b": [1]}, ValueError, "equal length"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "distinct"),
        (pl.LazyFrame({"a": [1]}), TypeError, "collect"),
        (scipy.sparse.csr_array(np.eye(2)), TypeError, "sparse"),
        (scipy.sparse.dok_matrix(np.eye(2)), TypeError, "sparse"),
        ("table", TypeError, "table"),
        (None, TypeError, "table"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else v,
)
def test_what_is_no_table_is_refused_in_fit_and_transform(X, error, words):
    for read in (TableEncoder().fit, TableEncoder().fit(np.ones((2, 1))).transform):
        with pytest.raises(error, match=words):
            read(X)


def test_absent_and_unknown_columns_are_named():
    encoder = TableEncoder().fit({"a": [1, 2], "b": [1, 2]})
    with pytest.raises(ValueError, match="Absent: 'b'; unknown: 'c'"):
        encoder.transform({"a": [1], "c": [2]})
    with pytest.raises(ValueError, match="Absent: none; unknown: 'c'"):
        encoder.transform({"a": [1], "b": [1], "c": [2]})
    with pytest.raises(ValueError, match="column names of 'fit', 'a', 'b'"):
        encoder.transform([[1, 2]])


def test_a_column_may_not_change_between_numbers_and_labels():
    encoder = TableEncoder().fit({"a": [1, 2], "b": ["x", "y"]})
    with pytest.raises(ValueError, match="must hold numbers in column 'a' as in 'fit'"):
        encoder.transform({"a": ["1", "2"], "b": ["x", "y"]})
    for column in ([1, 2], [True, False]):
        with pytest.raises(ValueError, match="must hold labels in column 'b' as in 'fit'"):
            encoder.transform({"a": [1, 2], "b": column})


@pytest.mark.parametrize("params", [{"scaling": "robust"}, {"scaling": None}, {"scaling": ["none"]}])
def test_scaling_is_checked_in_fit(params):
    with pytest.raises(ValueError, match="'scaling' must be one of 'standard', 'minmax', 'none'"):
        TableEncoder(**params).fit([[1.0]])


@pytest.mark.parametrize("most", [0, -1, 2.0, True, "3", None])
def test_max_categories_is_checked_in_fit(most):
    with pytest.raises(ValueError, match="'max_categories' must be an integer"):
        TableEncoder(max_categories=most).fit([[1.0]])


@pytest.mark.parametrize("most", [2, np.int64(2)])
def test_max_categories_counts_categories_without_the_missing_one(most):
    encoder = TableEncoder(max_categories=most).fit({"a": ["x", "y", None]})
    assert plain(encoder)["max_categories"] == 2


def test_an_encoder_that_is_not_fitted_says_so():
    for call in (TableEncoder().get_state, TableEncoder().get_feature_names_out):
        with pytest.raises(NotFittedError):
            call()


# State


@pytest.mark.parametrize("scaling", ["standard", "minmax", "none"])
@pytest.mark.parametrize("table", [COLUMNS, np.random.default_rng(2).normal(size=(9, 3)) ** 9])
def test_the_state_survives_json_to_the_last_bit(scaling, table):
    encoder = TableEncoder(scaling=scaling, max_categories=7).fit(table)
    restored = TableEncoder.from_state(plain(encoder))
    assert restored.get_params() == encoder.get_params()
    assert vars(restored).keys() == vars(encoder).keys()
    assert restored.get_state() == encoder.get_state()
    assert restored.transform(table).tobytes() == encoder.transform(table).tobytes()
    assert restored.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()
    assert pickle.loads(pickle.dumps(restored)).get_state() == clone(restored).fit(table).get_state()


def test_a_state_is_a_copy():
    encoder = TableEncoder().fit(COLUMNS)
    state = encoder.get_state()
    expected = copy.deepcopy(state)
    restored = TableEncoder.from_state(state)
    state["columns"][1]["categories"].append("zzz")
    state["columns"][0]["median"] = 0.0
    assert encoder.get_state() == restored.get_state() == expected


STATE = TableEncoder().fit({"n": [1.0, 2.0], "s": ["a", "b"]}).get_state()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("scaling",), "robust"),
        (("scaling",), 1),
        (("max_categories",), 0),
        (("max_categories",), True),
        (("max_categories",), 5.0),
        (("named",), 1),
        (("named",), False),
        (("extra",), 1),
        (("columns",), []),
        (("columns",), {}),
        (("columns",), None),
        (("columns", 0), []),
        (("columns", 0), None),
        (("columns", 0, "extra"), 1),
        (("columns", 0, "kind"), "ordinal"),
        (("columns", 0, "kind"), "categorical"),
        (("columns", 0, "kind"), ["numeric"]),
        (("columns", 0, "name"), None),
        (("columns", 0, "name"), "s"),
        (("columns", 0, "median"), float("nan")),
        (("columns", 0, "median"), 1),
        (("columns", 0, "median"), "1.0"),
        (("columns", 0, "center"), float("inf")),
        (("columns", 0, "center"), [1.0]),
        (("columns", 0, "scale"), -1.0),
        (("columns", 0, "scale"), True),
        (("columns", 1, "kind"), "numeric"),
        (("columns", 1, "kind"), "ordinal"),
        (("columns", 1, "missing"), 0),
        (("columns", 1, "categories"), []),
        (("columns", 1, "categories"), "ab"),
        (("columns", 1, "categories"), ["b", "a"]),
        (("columns", 1, "categories"), ["a", "a"]),
        (("columns", 1, "categories"), ["a", 1]),
        (("columns", 1, "categories"), ["a", None]),
        (("columns", 1, "categories"), [["a"]]),
    ],
    ids=str,
)
def test_a_forged_state_is_refused(path, value):
    forged = copy.deepcopy(STATE)
    place = forged
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=r"^'(state|scaling|max_categories)' must .* Got "):
        TableEncoder.from_state(forged)


@pytest.mark.parametrize(
    "path", [[key] for key in STATE] + [["columns", j, k] for j in (0, 1) for k in STATE["columns"][j]]
)
def test_a_state_with_a_key_taken_out_is_refused(path):
    forged = copy.deepcopy(STATE)
    place = forged
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    with pytest.raises(ValueError, match="'state' must"):
        TableEncoder.from_state(forged)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["columns", "kind", "name", "categories", "scale"]), inner, max_size=3
        ),
    ),
    max_leaves=6,
)


def test_a_median_that_no_number_could_be_is_refused():
    forged = copy.deepcopy(STATE)
    forged["columns"][0]["median"] = 1e300
    with pytest.raises(ValueError, match="a 'median' within 1e150 times 'scale' of 'center'"):
        TableEncoder.from_state(forged)


@settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    JSON,
    st.sampled_from(
        [(), *[(k,) for k in STATE], *[("columns", j, k) for j in (0, 1) for k in STATE["columns"][j]]]
    ),
)
def test_any_json_in_any_place_is_restored_as_it_is_or_refused(value, path):
    forged = copy.deepcopy(STATE)
    place = forged
    for key in path[:-1]:
        place = place[key]
    if path:
        place[path[-1]] = value
    else:
        forged = value
    try:
        encoder = TableEncoder.from_state(forged)
    except ValueError:
        return
    assert encoder.get_state() == forged
    names = [column["name"] for column in forged["columns"]]
    assert len(encoder.transform({names[0]: [None], names[1]: ["a"]})) == 1
