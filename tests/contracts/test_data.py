"""Conversion of inputs: what is accepted, what it becomes, and what every error message says."""

from __future__ import annotations

import datetime
import enum
import re
import subprocess
import sys
import time
import traceback
from decimal import Decimal
from fractions import Fraction

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch

from frhsic.data import Sensitive, split_labels, to_generator, to_matrix, to_sensitive, to_vector, to_weights

NUMBERS = [1.5, -2.0, 3.25, 0.0]
LABELS = ["m", "f", "f", "x"]
PLAIN_COLUMNS = {"list": list, "tuple": tuple, "numpy": np.array}
FRAME_COLUMNS = {
    "pandas": lambda v: pd.Series(v, name="c"),
    "polars": lambda v: pl.Series("c", v),
    "arrow_chunked": lambda v: pa.chunked_array([v[:2], v[2:]]),
    "arrow_array": pa.array,
    "pandas_index": lambda v: pd.Index(v, name="c"),
    "pandas_extension": pd.array,
    "narwhals": lambda v: nw.from_native(pl.Series("c", v), series_only=True),
    "dict": lambda v: {"c": v},
    "one_column_frame": lambda v: pl.DataFrame({"c": v}),
}
COLUMNS = PLAIN_COLUMNS | FRAME_COLUMNS
COLUMNS_OF_NUMBERS = COLUMNS | {"torch": torch.tensor}
TABLES = {
    "list": lambda d: [list(row) for row in zip(*d.values(), strict=True)],
    "tuple": lambda d: tuple(zip(*d.values(), strict=True)),
    "list_of_arrays": lambda d: [np.array(row) for row in zip(*d.values(), strict=True)],
    "numpy": lambda d: np.array(list(d.values())).T,
    "torch": lambda d: torch.tensor(list(d.values())).T,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "record_batch": pa.record_batch,
    "dict": dict,
    "dict_of_series": lambda d: {k: pd.Series(v, name="other") for k, v in d.items()},
    "narwhals": lambda d: nw.from_native(pd.DataFrame(d)),
}
NAMED_TABLES = {k: TABLES[k] for k in ("pandas", "polars", "arrow", "record_batch", "dict", "narwhals")}


def each(makers, *names):
    """Run for every maker, or for those named: what follows the reading of a column is the same for all."""
    makers = {name: makers[name] for name in names or makers}
    return pytest.mark.parametrize("make", list(makers.values()), ids=list(makers))


def refuses(call, argument, must="", got="", cure="", error=(ValueError, TypeError)):
    """Check the grammar of a message: argument in quotes, what must hold, what arrived, how to fix it."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    form = re.fullmatch(rf"'{argument}' must (.+?)\. Got (.+?)\. ([A-Z].+\.)", message, re.DOTALL)
    assert form, message
    for part, claim in zip(form.groups(), (must, got, cure), strict=True):
        assert re.search(claim, part, re.DOTALL), message
    return message


# What is accepted


@each(COLUMNS_OF_NUMBERS)
def test_every_column_of_numbers_gives_the_same_vector(make):
    y = to_vector(make(NUMBERS))
    assert y.dtype == torch.float64
    assert y.tolist() == NUMBERS


@each(COLUMNS_OF_NUMBERS, "list", "torch", "pandas", "dict")
def test_one_column_alone_is_a_matrix_of_one_column(make):
    assert to_matrix(make(NUMBERS)).tolist() == [[v] for v in NUMBERS]


@each(TABLES)
def test_every_table_gives_the_same_matrix(make):
    x = to_matrix(make({"a": NUMBERS, "b": [1.0, 2.0, 3.0, 4.0]}))
    assert x.dtype == torch.float64
    assert x.is_contiguous()
    assert x.tolist() == [[1.5, 1.0], [-2.0, 2.0], [3.25, 3.0], [0.0, 4.0]]


@pytest.mark.parametrize(
    "x",
    [
        np.array([1, 2, 3], dtype="u1"),
        np.array([1, 2, 3], dtype="f2"),
        np.array([1, 2, 3], dtype=">f8"),
        np.array([1, 2, 3], dtype=">i4"),
        np.array([1, 2, 3], dtype=np.longdouble),
        np.array([1, 2, 3], dtype=object),
        np.array([3.0, 2.0, 1.0])[::-1],
        np.array([1.0, 9.0, 2.0, 9.0, 3.0])[::2],
        np.ma.array([1.0, 2.0, 3.0], mask=False),
        np.frombuffer(np.array([1.0, 2.0, 3.0]).tobytes()),
        np.frombuffer(b"\0" + np.array([1.0, 2.0, 3.0]).tobytes(), offset=1),
        np.array([[1], [2], [3]]),
        torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
        torch.tensor([1, 2, 3], dtype=torch.bfloat16),
        torch.tensor([1, 2, 3], dtype=torch.int8),
        [torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0)],
        [Decimal("1"), Fraction(2, 1), np.float32(3)],
        range(1, 4),
        pd.Series([1, 2, 3], dtype="Int64"),
        pd.Series([1, 2, 3], dtype="Float32"),
        pd.Series([1, 2, 3], dtype="uint8[pyarrow]"),
        pd.Series([1, 2, 3], dtype=object),
        pd.Series(pd.arrays.SparseArray([1.0, 2.0, 3.0])),
        pl.Series([Decimal("1.0"), Decimal("2.0"), Decimal("3.0")]),
        pl.Series([1, 2, 3], dtype=pl.Int128),
        pa.array([Decimal("1.0"), Decimal("2.0"), Decimal("3.0")]),
        pa.array([1, 2, 3], pa.float16()),
    ],
    ids=lambda x: f"{type(x).__module__}.{type(x).__name__}",
)
def test_every_number_type_and_memory_layout_gives_float64(x):
    y = to_vector(x)
    assert y.dtype == torch.float64
    assert not y.requires_grad
    assert y.tolist() == [1.0, 2.0, 3.0]


def test_memory_order_does_not_change_the_matrix():
    x = np.arange(12.0).reshape(3, 4)
    for layout in (np.asfortranarray(x), x[::-1][::-1], np.repeat(x, 2, axis=1)[:, ::2], x.T.copy().T):
        result = to_matrix(layout)
        assert result.is_contiguous()
        assert torch.equal(result, torch.from_numpy(x))


def test_a_read_only_array_is_not_shared_and_gives_no_warning():
    x = np.arange(4.0)
    x.flags.writeable = False
    to_matrix(x).add_(1.0)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_float64_arrays_and_tensors_are_not_copied():
    x, t = np.ones((3, 2)), torch.ones(3, 2, dtype=torch.float64)
    assert to_matrix(x).data_ptr() == x.ctypes.data
    assert to_matrix(t).data_ptr() == t.data_ptr()


def test_booleans_are_zero_and_one_in_a_matrix_and_a_vector():
    assert to_matrix({"a": [True, False], "b": pl.Series([False, True])}).tolist() == [[1, 0], [0, 1]]
    assert to_vector(torch.tensor([True, False])).tolist() == [1, 0]
    assert to_vector(pd.Series([True, False], dtype="boolean")).tolist() == [1, 0]


def test_dtype_is_the_type_of_the_result_and_bounds_the_entries():
    assert to_matrix([1.0], dtype=torch.float32).dtype == torch.float32
    assert to_matrix([1e30]).isfinite().all()
    refuses(lambda: to_matrix([1e30], dtype=torch.float32), "X", "2e\\+19", "larger", "Rescale")


@pytest.mark.parametrize("make", [np.ones, lambda n: pd.Series(np.ones(n))], ids=["numpy", "pandas"])
def test_ten_million_numbers_pass_in_under_a_second(make):
    x = make(10_000_000)
    seconds = []
    for _ in range(3):  # the quickest: other work on the machine slows the rest
        start = time.process_time()
        to_vector(x)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 1.0


def test_the_package_imports_no_dataframe_library():
    code = "import sys, frhsic.data; print([m for m in ('pandas', 'polars', 'pyarrow') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


# What is an error


REFUSED = {
    "none": (None, "NoneType", "Pass"),
    "text": ("abc", "str", "Pass"),
    "bytes": (b"abc", "bytes", "Pass"),
    "scalar": (3.0, "float", "Pass"),
    "zero_dimensional": (np.array(3.0), "ndarray", "Pass"),
    "zero_dimensional_tensor": (torch.tensor(3.0), "Tensor", "Pass"),
    "generator": ((v for v in [1.0, 2.0]), "generator", "Pass"),
    "set": ({1.0, 2.0}, "set", "Pass"),
    "ragged": ([[1.0], [1.0, 2.0]], "list", "Pass"),
    "dict_of_dicts": ({"a": {"b": [1.0, 2.0]}}, "dict", "Pass"),
    "dict_of_scalars": ({"a": 1.0}, "float", "Pass"),
    "three_dimensions": (np.ones((2, 2, 2)), "shape", "Reshape"),
    "complex": (np.array([1j, 2.0]), "complex", "two columns"),
    "complex_pandas": (pd.Series([1j, 2.0]), "complex", "two columns"),
    "bytes_entries": ([b"a", b"b"], "bytes", "Decode"),
    "structured": (np.zeros(2, dtype=[("a", "f8")]), "structured", "dict of columns"),
    "nested": (pl.Series([[1.0], [2.0, 3.0]]), "nested", "Unnest"),
    "struct": (pl.Series([{"a": 1.0}, {"a": 2.0}]), "nested", "Unnest"),
    "lazy": (pl.LazyFrame({"a": [1.0]}), "lazy", "collect"),
    "scipy_matrix": (scipy.sparse.csr_matrix(np.array([[0, 1j]])), "complex", "Pass"),
    "scipy_large": (scipy.sparse.coo_array((10**6, 10**6)), "GB", "Leave out"),
    "torch_sparse": (torch.eye(2).to_sparse(), "sparse", "Densify"),
    "meta_tensor": (torch.ones(2, device="meta"), "Tensor", "Pass"),
    "dates_numpy": (np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]"), "dates", "years"),
    "durations_numpy": (np.array([1, 2], dtype="m8[D]"), "durations", "years"),
    "dates_list": ([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)], "'date' in row 0", "years"),
    "dates_pandas": (pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"])), "dates", "years"),
    "zoned_pandas": (pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"], utc=True)), "dates", "years"),
    "dates_polars": (pl.Series([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]), "dates", "years"),
    "times_polars": (pl.Series([datetime.time(1), datetime.time(2)]), "'time' in row 0", "years"),
    "durations_arrow": (pa.array([datetime.timedelta(1), datetime.timedelta(2)]), "durations", "years"),
    "objects": ([1.0, object()], "'object' in row 1", "Convert"),
    "mixed": ([1.0, 2.0, "a"], "'str' in row 2", "Convert"),
    "mixed_object_column": (pd.Series([1.0, "a"], dtype=object), "'str' in row 1", "Convert"),
    "too_large": ([1.0, -1e151], "larger", "Rescale"),
    "huge_integer": ([1.0, 10**400], "larger", "Rescale"),
    "huge_whole_numbers": ([1, 10**400], "larger", "Rescale"),
    "infinite": ([1.0, -np.inf], "1 infinite", "Drop"),
    "infinite_decimal": ([1.0, Decimal("1e999")], "1 infinite", "Drop"),
    "empty_list": ([], "0", "Pass"),
    "no_columns": ([[], []], "none", "Pass"),
    "no_columns_frame": (pd.DataFrame(index=[1, 2]), "none", "Pass"),
    "empty_dict": ({}, "none", "Pass"),
    "empty_frame": (pl.DataFrame({"a": []}), "0", "Pass"),
    "empty_strings": (pl.Series([], dtype=pl.String), "0", "Pass"),
    "unequal": ({"a": [1.0, 2.0], "b": [1.0]}, "1 to 2 rows", "align"),
    "twice_pandas": (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), "twice", "Rename"),
    "twice_as_text": (pd.DataFrame([[1.0, 2.0]], columns=[1, "1"]), "twice", "Rename"),
    "twice_arrow": (pa.table([[1.0], [2.0]], names=["a", "a"]), "twice", "Rename"),
    "twice_dict": ({1: [1.0], "1": [2.0]}, "twice", "Rename"),
}


@pytest.mark.parametrize(("x", "got", "cure"), list(REFUSED.values()), ids=list(REFUSED))
def test_what_is_no_table_is_refused_with_a_cure(x, got, cure):
    refuses(lambda: to_matrix(x, name="data"), "data", "", got, cure)
    refuses(lambda: to_sensitive(x, name="s"), "s")


MISSING = {
    "none": [1.0, None, 2.0],
    "nan": [1.0, np.nan, 2.0],
    "decimal": [1.0, Decimal("sNaN"), Decimal("1")],
    "masked": np.ma.array([1.0, 5.0, 2.0], mask=[False, True, False]),
    "masked_integers": np.ma.array([1, 5, 2], mask=[False, True, False]),
    "torch": torch.tensor([1.0, torch.nan, 2.0]),
    "pandas": pd.Series([1.0, None, 2.0]),
    "pandas_nullable": pd.Series([1, pd.NA, 2], dtype="Int64"),
    "pandas_arrow": pd.Series([1, None, 2], dtype="int64[pyarrow]"),
    "pandas_object": pd.Series([1, pd.NA, 2], dtype=object),
    "pandas_time": pd.Series([1, pd.NaT, 2], dtype=object),
    "pandas_boolean": pd.Series([True, None, False], dtype="boolean"),
    "pandas_text": pd.Series(["a", None, "b"]),
    "pandas_text_object": pd.Series(["a", np.nan, "b"], dtype=object),
    "pandas_category": pd.Series(["a", None, "b"], dtype="category"),
    "polars": pl.Series([1, None, 2]),
    "polars_nan": pl.Series([1.0, float("nan"), 2.0]),
    "polars_boolean": pl.Series([True, None, False]),
    "polars_category": pl.Series(["a", None, "b"], dtype=pl.Categorical),
    "polars_decimal": pl.Series([Decimal("1.5"), None, Decimal("2.5")]),
    "arrow": pa.array([1, None, 2]),
    "arrow_dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
}


@pytest.mark.parametrize("x", list(MISSING.values()), ids=list(MISSING))
def test_missing_values_are_refused_with_their_number_and_first_row(x):
    for convert in (to_matrix, to_vector, to_sensitive, split_labels):
        refuses(lambda c=convert: c(x, name="data"), "data", "no missing values", "1 .*row 1", "Drop or fill")


def test_a_refusal_hides_a_cause_that_would_quote_data():
    class Loud(float):
        def __float__(self):
            raise ValueError("could not convert 987654")

    with pytest.raises(ValueError) as caught:
        to_matrix(np.array([Loud(1.0), Fraction(1)], dtype=object))
    assert "987654" not in "".join(traceback.format_exception(caught.value))


def test_whole_numbers_beyond_64_bits_pass():
    assert to_vector([2**64, 1]).tolist() == [2.0**64, 1.0]
    assert to_vector(np.array([2**70, -(2**63)], dtype=object)).tolist() == [2.0**70, -(2.0**63)]


def twins(n=60):
    """Return whole numbers of which every two are the same in float64."""
    return [2**60 + i for i in range(n)]


@pytest.mark.parametrize(
    "x",
    [np.array(twins()), twins(), {"a": twins()}, pd.DataFrame({"a": twins()}), [v + 2**70 for v in twins()]],
    ids=["array", "list", "dict", "frame", "beyond 64 bits"],
)
def test_whole_numbers_that_become_one_in_float64_are_a_warning(x):
    with pytest.warns(UserWarning, match=r"'X' has 60 different whole numbers.*, beyond 2\^53, of which"):
        to_matrix(x)


def test_large_whole_numbers_that_stay_apart_pass_in_silence():
    nanoseconds = pd.date_range("2026-11-19", periods=60, freq="s").astype("int64")
    assert len(to_vector(nanoseconds.to_numpy()).unique()) == 60
    assert len(to_sensitive({"at": nanoseconds.to_numpy()}).values.unique()) == 60
    assert len(to_vector([2**60] * 30 + [2**53] * 30).unique()) == 2


def test_numbers_whose_powers_vanish_are_an_error():
    with pytest.raises(ValueError, match=r"'scores' must exceed 1e-75 in size.*at most 9e-300\. Rescale"):
        to_vector([1e-300, 9e-300, 0.0], name="scores")
    assert to_vector([0.0, 0.0]).tolist() == [0.0, 0.0]


def test_all_missing_is_missing():
    for x in (pl.Series([None, None]), pa.nulls(2), [None, None], pd.Series([None, None])):
        refuses(lambda x=x: to_matrix(x), "X", "no missing values", "2 .*row 0")


def test_a_refusal_names_the_column():
    for frame in (pd.DataFrame, pl.DataFrame, pa.table, dict):
        refuses(lambda f=frame: to_matrix(f({"a": [1.0, 2.0], "ß🙂": [1.0, None]})), "X", "in column 'ß🙂'")
    refuses(lambda: to_matrix({"a": [1.0], "b": None}), "X", "in column 'b'")
    refuses(lambda: to_matrix({"a": [1.0], "b": "text"}), "X", "in column 'b'")
    refuses(lambda: to_matrix({"a": [1.0], "b": [[1.0, 2.0]]}), "X", "in column 'b'")


def test_strings_and_categories_are_no_numbers():
    refuses(lambda: to_matrix(["1", "2"]), "X", "numbers", "strings", "Convert")
    refuses(lambda: to_matrix(["a", "b", "2"]), "X", "numbers", "strings", "Encode")
    refuses(lambda: to_matrix(pd.Series([1, 2], dtype="category")), "X", "numbers", "categories", "Encode")
    refuses(lambda: to_vector(np.array(["a", "b"])), "y", "numbers", "strings", "Encode")


def test_min_rows_is_the_fewest_rows_allowed():
    refuses(lambda: to_matrix([1.0, 2.0], min_rows=3), "X", "at least 3 rows", "2", "more rows")
    refuses(lambda: to_vector([1.0, 2.0], min_rows=3), "y", "at least 3 rows", "2", "more rows")
    refuses(lambda: to_sensitive([1.0]), "sensitive_features", "at least 2 rows", "1", "more rows")
    assert len(to_matrix([1.0, 2.0], min_rows=2)) == 2


def test_a_wrong_number_of_rows_names_both_arguments():
    message = refuses(lambda: to_sensitive([1.0] * 118, n_rows=120), "sensitive_features")
    assert message == (
        "'sensitive_features' must have 120 rows like 'X'. Got 118. Drop or align the missing rows first."
    )
    refuses(lambda: to_vector([1.0], n_rows=2, rows_of="Z"), "y", "2 rows like 'Z'", "1")
    refuses(lambda: to_weights([1.0], n_rows=2, rows_of="Z"), "sample_weight", "2 rows like 'Z'", "1")


def test_columns_of_more_rows_are_refused_like_those_of_fewer():
    for convert, name in (
        (to_vector, "y"),
        (to_weights, "sample_weight"),
        (to_sensitive, "sensitive_features"),
    ):
        refuses(
            lambda convert=convert: convert([1.0, 2.0, 3.0], n_rows=2, rows_of="Z"),
            name,
            "2 rows like 'Z'",
            "3",
        )


def test_a_vector_has_one_column():
    refuses(lambda: to_vector([[1.0, 2.0]]), "y", "single column", "2", "Choose")
    refuses(lambda: split_labels(pl.DataFrame({"a": [1], "b": [2]})), "y", "single column", "2", "Choose")


def test_refusals_print_no_data_value():
    secret = 987654.25
    calls = [
        lambda: to_matrix([secret, None]),
        lambda: to_matrix([secret, "name"]),
        lambda: to_matrix([secret, np.inf]),
        lambda: to_matrix([secret * 1e200]),
        lambda: to_sensitive([secret, secret]),
        lambda: to_sensitive(["name", "name"]),
        lambda: to_matrix(["name", "name"]),
        lambda: to_weights([-secret, 1.0], n_rows=2),
        lambda: to_matrix([secret, b"name"]),
        lambda: to_matrix("name"),
    ]
    for call in calls:
        message = refuses(call, r"\w+")
        assert "9876" not in message
        assert "'name'" not in message


# Sensitive columns


@each(COLUMNS_OF_NUMBERS, "list", "numpy", "torch", "pandas", "arrow_array", "one_column_frame")
def test_numbers_are_continuous(make):
    for values in (NUMBERS, [1, 2, 3, 2]):
        s = to_sensitive(make(values))
        assert s.kinds == ("continuous",)
        assert s.categories == (None,)
        assert s.values.dtype == torch.float64
        assert s.values.tolist() == [[v] for v in values]


@each(COLUMNS)
def test_strings_are_categorical_with_codes_in_sorted_order(make):
    s = to_sensitive(make(LABELS))
    assert s.kinds == ("categorical",)
    assert s.categories == (("f", "m", "x"),)
    assert s.values.tolist() == [[1.0], [0.0], [0.0], [2.0]]


@each(COLUMNS_OF_NUMBERS)
def test_booleans_are_categorical(make):
    s = to_sensitive(make([True, False, True, True]))
    assert s.kinds == ("categorical",)
    assert s.categories == ((False, True),)
    assert s.values[:, 0].tolist() == [1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "s",
    [
        pd.Series(LABELS, dtype="category"),
        pd.Categorical(LABELS),
        pd.Series(LABELS, dtype=object),
        pd.Series(LABELS, dtype="string[pyarrow]"),
        pl.Series(LABELS, dtype=pl.Categorical),
        pl.Series(LABELS, dtype=pl.Enum(["x", "m", "f", "unused"])),
        pa.array(LABELS).dictionary_encode(),
        np.array(LABELS),
        np.array(LABELS, dtype=object),
        np.array(LABELS, dtype=np.dtypes.StringDType()),
        [enum.StrEnum("Sex", "m f x")[v] for v in LABELS],
    ],
    ids=range(11),
)
def test_every_type_of_category_gives_the_same_codes(s):
    result = to_sensitive(s)
    assert result.categories == (("f", "m", "x"),)
    assert {type(label) for label in result.categories[0]} == {str}
    assert result.values[:, 0].tolist() == [1.0, 0.0, 0.0, 2.0]


def test_categories_of_numbers_and_of_intervals_are_categorical():
    s = to_sensitive(pd.Series([30, 10, 30], dtype="category"))
    assert s.categories == ((10, 30),)
    assert s.values[:, 0].tolist() == [1.0, 0.0, 1.0]
    assert to_sensitive(pa.array([3, 1]).dictionary_encode()).categories == ((1, 3),)
    bins = to_sensitive(pd.cut(pd.Series([1.0, 2.0, 3.0]), [0, 2, 4]))
    assert bins.categories == (("(0, 2]", "(2, 4]"),)


@each(NAMED_TABLES)
def test_a_frame_keeps_its_names_and_the_kind_of_each_column(make):
    s = to_sensitive(make({"alter": [31, 45, 62], "Größe 🙂": ["f", "m", "f"], "": [True, False, True]}))
    assert s.names == ("alter", "Größe 🙂", "")
    assert s.kinds == ("continuous", "categorical", "categorical")
    assert s.values.tolist() == [[31, 0, 1], [45, 1, 0], [62, 0, 1]]


def test_rows_of_mixed_columns_are_read_column_by_column():
    for rows in ([[31, "f"], [45, "m"]], np.array([[31, "f"], [45, "m"]], dtype=object)):
        s = to_sensitive(rows)
        assert s.names == ("s0", "s1")
        assert s.kinds == ("continuous", "categorical")
        assert s.values.tolist() == [[31.0, 0.0], [45.0, 1.0]]


def test_names_come_from_the_series_or_are_s():
    assert to_sensitive(pd.Series([1, 2], name="age")).names == ("age",)
    assert to_sensitive(pl.Series("age", [1, 2])).names == ("age",)
    assert to_sensitive(pd.Series([1, 2], name=7)).names == ("7",)
    for unnamed in (pd.Series([1, 2]), pl.Series([1, 2]), pa.array([1, 2]), [1, 2], torch.tensor([1, 2])):
        assert to_sensitive(unnamed).names == ("s",)
    assert to_sensitive(np.eye(3)).names == ("s0", "s1", "s2")
    assert to_sensitive(pd.DataFrame(np.eye(2))).names == ("0", "1")


def test_kinds_overrides_the_kind():
    s = to_sensitive({"zone": [7, 3, 7], "age": [1, 2, 3]}, kinds={"zone": "categorical"})
    assert s.kinds == ("categorical", "continuous")
    assert s.categories == ((3, 7), None)
    assert s.values[:, 0].tolist() == [1.0, 0.0, 1.0]
    assert to_sensitive([2.5, 1.5], kinds="categorical").categories == ((1.5, 2.5),)
    assert to_sensitive(np.array([3, 2], dtype=object), kinds="categorical").categories == ((2, 3),)
    assert to_sensitive([True, False], kinds="continuous").values.tolist() == [[1.0], [0.0]]


def test_text_that_is_all_numbers_may_be_continuous():
    for column in (
        ["1.5", " -2e3"],
        pd.Series(["1.5", "-2e3"], dtype="category"),
        pl.Series(["1.5", "-2000"]),
    ):
        s = to_sensitive(column, kinds="continuous")
        assert s.kinds == ("continuous",)
        assert s.categories == (None,)
        assert s.values.tolist() == [[1.5], [-2000.0]]
    for wrong in ("", "abc", "nan", "inf", "1_2"):
        refuses(
            lambda w=wrong: to_sensitive(["1", w], kinds="continuous"),
            "sensitive_features",
            "continuous",
            f"'{wrong}'",
            "categorical",
        )
    refuses(lambda: to_sensitive(["1", "1e200"], kinds="continuous"), "sensitive_features", cure="Rescale")


def test_at_most_five_labels_are_shown_each_cut_to_forty_characters():
    message = refuses(
        lambda: to_sensitive([f"{j} " + "x" * 50 for j in range(9)], kinds="continuous"), "sensitive_features"
    )
    assert message.count("…") == 5
    assert "and 4 more" in message
    assert max(map(len, re.findall(r"'(\d x+…)'", message))) == 40


def test_wrong_kinds_are_refused():
    two = {"a": [1, 2], "b": [1, 2]}
    refuses(lambda: to_sensitive(two, kinds="continuous"), "kinds", "dict", "'str' for 2 columns", "Write")
    refuses(lambda: to_sensitive(two, kinds=["continuous"]), "kinds", "dict", "'list'")
    refuses(lambda: to_sensitive(two, kinds={"c": "continuous"}), "kinds", "'a', 'b'", "'c'", "Correct")
    refuses(lambda: to_sensitive(two, kinds={"a": "ordinal"}), "kinds", "'continuous'", "'ordinal'", "Choose")
    refuses(lambda: to_sensitive(two, kinds={"a": None}), "kinds")


def test_a_constant_column_is_refused_unless_allowed():
    for column in ([1.0, 1.0], ["a", "a"], [True, True], pl.Series("c", ["a", "a"], dtype=pl.Categorical)):
        refuses(lambda c=column: to_sensitive(c), "sensitive_features", "vary", "all 2 rows", "Leave")
        assert len(to_sensitive(column, allow_constant=True)) == 2
    refuses(lambda: to_sensitive({"a": [1, 2], "b": [3, 3]}), "sensitive_features", "in column 'b'")


def test_like_gives_the_earlier_codes_names_order_and_kinds():
    first = to_sensitive(
        {"sex": ["f", "m", "x"], "zone": [3, 5, 9], "age": [1, 2, 3]}, kinds={"zone": "categorical"}
    )
    later = to_sensitive(pl.DataFrame({"age": [9, 8], "zone": [9, 3], "sex": ["x", "f"]}), like=first)
    assert later.names == first.names
    assert later.kinds == first.kinds
    assert later.categories == first.categories
    assert later.values.tolist() == [[2.0, 2.0, 9.0], [0.0, 0.0, 8.0]]
    assert to_sensitive(["5", "6"], like=to_sensitive([1.0, 2.0])).values.tolist() == [[5.0], [6.0]]


def test_like_refuses_what_it_has_not_seen():
    first = to_sensitive({"sex": ["f", "m"], "age": [1, 2]})
    message = refuses(
        lambda: to_sensitive({"sex": ["f", "divers"], "age": [1, 2]}, like=first),
        "sensitive_features",
        "in column 'sex': 'f', 'm'",
        "'divers'",
        "recode",
    )
    assert message.index("'m'") < message.index("'divers'")
    refuses(
        lambda: to_sensitive({"sex": ["f", "m"]}, like=first), "sensitive_features", "'age'", "'sex'", "Add"
    )
    extra = {"sex": ["f", "m"], "age": [1, 2], "z": [1, 2]}
    refuses(lambda: to_sensitive(extra, like=first), "sensitive_features", "as before", "'z'", "drop")
    refuses(lambda: to_sensitive(["f", "m"], like=first), "sensitive_features", "as before", "'s'")
    both = {"sex": ["f", "m"], "age": ["a", "b"]}
    refuses(lambda: to_sensitive(both, like=first), "sensitive_features", "in column 'age'", "'a', 'b'")
    refuses(
        lambda: to_sensitive(both, like=first, kinds={"age": "categorical"}), "kinds", "None", "both", "Leave"
    )


def test_one_unnamed_column_takes_the_name_of_one_earlier_column():
    first = to_sensitive(pd.Series(["f", "m"], name="sex"))
    assert to_sensitive(["m", "f"], like=first).names == ("sex",)
    refuses(lambda: to_sensitive(pd.Series(["m", "f"], name="gender"), like=first), "sensitive_features")
    message = refuses(lambda: to_sensitive(["m", "q"], like=first), "sensitive_features")
    assert "'q'" in message


def test_like_without_labels_cannot_serve_a_categorical_column():
    codes = Sensitive(torch.tensor([[0.0], [1.0]]), ("sex",), ("categorical",))
    refuses(lambda: to_sensitive({"sex": ["f", "m"]}, like=codes), "like", "labels", "none", "to_sensitive")


def test_sensitive_takes_rows_and_columns_and_moves():
    s = to_sensitive({"age": [31, 45, 62], "sex": ["f", "m", "f"]})
    assert len(s) == 3
    assert s[torch.tensor([2, 0])].values.tolist() == [[62.0, 0.0], [31.0, 0.0]]
    assert len(s[torch.tensor([True, False, True])]) == 2
    swapped = s.columns(["sex", "age"])
    assert swapped.names == ("sex", "age")
    assert swapped.categories == (("f", "m"), None)
    assert swapped.values.tolist() == [[0.0, 31.0], [1.0, 45.0], [0.0, 62.0]]
    assert s.to(torch.zeros(1, dtype=torch.float64)) is s
    half = s.to(torch.zeros(1, dtype=torch.float32))
    assert half.values.dtype == torch.float32
    assert half.categories == s.categories


def test_sensitive_prints_as_a_line_without_data():
    s = to_sensitive({"age": [31, 45, 62], "sex": ["f", "m", "f"]})
    assert repr(s) == "Sensitive(n=3, age: continuous, sex: categorical with 2 categories)"
    assert repr(Sensitive(torch.ones(2, 1), ("c",), ("categorical",))) == "Sensitive(n=2, c: categorical)"


def test_sensitive_refuses_what_does_not_fit_together():
    refuses(lambda: Sensitive(torch.ones(3), ("a",), ("continuous",)), "values", got="shape")
    refuses(lambda: Sensitive(torch.ones(3, 2), ("a",), ("continuous",)), "values", got="1 names")
    refuses(lambda: Sensitive(torch.ones(3, 1), ("a",), ("continuous",), (None, None)), "values")
    s = to_sensitive({"age": [31, 45], "sex": ["f", "m"]})
    for names in (["income"], "age", []):
        refuses(lambda n=names: s.columns(n), "names", "age.*sex", cure="Use")


# Weights, labels, generators


@each(COLUMNS_OF_NUMBERS, "list", "pandas", "arrow_chunked")
def test_weights_come_back_as_they_are(make):
    w = to_weights(make([1.0, 0.0, 2.5, 3.0]), n_rows=4)
    assert w.tolist() == [1.0, 0.0, 2.5, 3.0]
    assert to_weights(None, n_rows=4) is None


def test_weights_are_not_negative_and_not_all_zero():
    refuses(lambda: to_weights([1.0, -1.0], n_rows=2), "sample_weight", "negative", "1 negative", "zero")
    refuses(lambda: to_weights([0.0, 0.0], n_rows=2), "sample_weight", "positive sum", "zeros", "Give")
    refuses(lambda: to_weights([1.0, np.nan], n_rows=2, name="w"), "w", "missing")


@each(COLUMNS, "list", "numpy", "polars", "dict")
def test_labels_split_the_rows(make):
    split = split_labels(make(LABELS))
    assert [(one.value, one.rows.tolist()) for one in split.kept] == [
        ("f", [1, 2]),
        ("m", [0]),
        ("x", [3]),
    ]
    assert all(one.rows.dtype == torch.int64 for one in split.kept)


@pytest.mark.parametrize(
    ("y", "values"),
    [
        ([2, 1, 2], [1, 2]),
        ([2.5, 1.5, 2.5], [1.5, 2.5]),
        ([True, False, True], [False, True]),
        (np.array([2, 1, 2], dtype=object), [1, 2]),
        (torch.tensor([2, 1, 2]), [1, 2]),
        (pd.Series([2**60 + 1, 2**60, 2**60 + 1]), [2**60, 2**60 + 1]),
        (pd.Series([2, 1, 2], dtype="category"), [1, 2]),
    ],
    ids=range(7),
)
def test_a_label_is_kept_as_written(y, values):
    split = split_labels(y)
    assert [one.value for one in split.kept] == values
    assert [type(one.value) for one in split.kept] == [type(v) for v in values]
    assert [one.rows.tolist() for one in split.kept] == [[1], [0, 2]]


def test_generators_from_the_same_seed_draw_the_same_numbers():
    def draw(state):
        return torch.rand(3, generator=to_generator(state)).tolist()

    assert draw(7) == draw(np.int32(7)) != draw(8)
    assert draw(np.random.default_rng(7)) == draw(np.random.default_rng(7)) != draw(np.random.default_rng(8))
    assert draw(np.random.RandomState(7)) == draw(np.random.RandomState(7)) != draw(np.random.RandomState(8))
    assert draw(None) != draw(None)
    rng = np.random.default_rng(7)
    assert draw(rng) != draw(rng)


def test_generators_touch_no_global_seed():
    before, before_numpy = torch.get_rng_state(), np.random.mtrand._rand.get_state()[1].tolist()
    for state in (None, 7, np.random.default_rng(7)):
        to_generator(state)
    assert torch.equal(before, torch.get_rng_state())
    assert before_numpy == np.random.mtrand._rand.get_state()[1].tolist()
    generator = torch.Generator()
    assert to_generator(generator) is generator


@pytest.mark.parametrize("state", ["7", 7.0, True, -1, 2**63, [7]])
def test_other_random_states_are_refused(state):
    refuses(lambda: to_generator(state), "random_state", cure="Pass")
