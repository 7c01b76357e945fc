"""Hostile inputs: finite float64 tensors, or a ValueError or TypeError that says how to fix them."""

from __future__ import annotations

import datetime
import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from frhsic.data import split_labels, to_matrix, to_sensitive, to_vector, to_weights

hostile = settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

# Entries, columns and tables

MOMENTS = st.one_of(
    st.dates(),
    st.datetimes(),
    st.times(),
    st.timedeltas(),
    st.just(pd.Timestamp(0)),
    st.just(np.timedelta64(1, "D")),
)
NUMBERS = st.one_of(
    st.floats(),
    st.floats(-1e3, 1e3),
    st.floats(-1e-300, 1e-300),
    st.integers(),
    st.integers(-3, 3),
    st.sampled_from([10**400, -(10**400), 2**53 + 1, 2**63, 2**64, 1e150, -1.1e150, 5e-324, -0.0]),
    st.decimals(),
    st.fractions(),
    st.sampled_from([np.float16(2), np.float32(0.1), np.int8(-3), np.uint64(2**63), np.longdouble(3)]),
)
LABELS = st.one_of(
    st.text(max_size=4), st.sampled_from(["", "a", "ß", "🙂", "nan", "1.5", "1_0", "\x00", "x" * 99])
)
ODD = st.one_of(
    st.none(),
    st.sampled_from(
        [pd.NA, pd.NaT, np.nan, Decimal("sNaN"), np.ma.masked, pd.Interval(0, 1), pd.Period("2020")]
    ),
    st.binary(max_size=3),
    st.complex_numbers(),
    st.builds(object),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sampled_from(
        [torch.tensor(1.0), torch.ones(2), torch.tensor(1.0, requires_grad=True), np.ones(2), int]
    ),
)
ENTRIES = st.one_of(NUMBERS, st.booleans(), LABELS, MOMENTS, ODD)
NAMES = st.one_of(
    st.text(max_size=3), st.sampled_from(["a", "a", "b", "", "é", "🙂", "0"]), st.integers(0, 2), st.none()
)


@st.composite
def columns(draw, min_size=0, max_size=6):
    kind = draw(
        st.sampled_from([NUMBERS, NUMBERS, st.floats(-9, 9), st.booleans(), LABELS, MOMENTS, ENTRIES])
    )
    column = draw(st.lists(kind, min_size=min_size, max_size=max_size))
    if column and draw(st.booleans()):  # duplicated rows
        column = [column[draw(st.integers(0, len(column) - 1))] for _ in column]
    return column


def build(make):
    """The object, or a rejected example where the library itself refuses to make it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()
    except Exception:
        assume(False)


DTYPES = [
    "?",
    "i1",
    "u1",
    "i4",
    "u8",
    "f2",
    "f4",
    "f8",
    ">f8",
    ">i8",
    "g",
    "c16",
    "M8[s]",
    "m8[D]",
    "S2",
    "U2",
    "O",
]


@st.composite
def arrays(draw):
    plain = st.sampled_from([np.dtype(d) for d in DTYPES])
    dtype = draw(st.one_of(plain, plain, plain, hnp.array_dtypes(max_size=2)))
    shape = draw(
        st.one_of(st.integers(1, 6), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    )
    shape = (shape,) if isinstance(shape, int) else shape
    if dtype.kind == "O":
        flat = draw(st.lists(ENTRIES, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        array = np.empty(len(flat), dtype=object)
        for i, v in enumerate(flat):
            array[i] = v
        array = array.reshape(shape)
    else:
        array = draw(hnp.arrays(dtype, shape))
    change = draw(
        st.sampled_from(["none", "T", "F", "reverse", "step", "frozen", "broadcast", "masked", "subset"])
    )
    mask = draw(hnp.arrays(bool, array.shape)) if change == "masked" else False
    if array.ndim and change != "none":
        array = {
            "T": lambda a: a.T,
            "F": np.asfortranarray,
            "reverse": lambda a: a[::-1],
            "step": lambda a: a[..., ::2],
            "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape)),
            "masked": lambda a: build(lambda: np.ma.array(a, mask=mask)),
            "subset": lambda a: a[:1],
            "frozen": lambda a: a,
        }[change](array)
        if change == "frozen":
            array.flags.writeable = False
    return array


@st.composite
def tensors(draw):
    dtype = draw(
        st.sampled_from([torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32])
        | st.sampled_from([torch.float64, torch.complex64, torch.float8_e5m2])
    )
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    values = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5, -7.0, 6e4]), min_size=64, max_size=64))
    x = torch.tensor(values)[: int(np.prod(shape))].reshape(shape).to(dtype)
    if dtype == torch.float64 and draw(st.booleans()):
        x = x * draw(st.sampled_from([1e300, float("nan"), float("inf"), 1e-310]))
    change = draw(st.sampled_from(["none", "none", "grad", "sparse", "T", "flip", "meta", "expand"]))
    if change == "grad" and dtype.is_floating_point and dtype.itemsize > 1:
        x.requires_grad_()
    elif change == "sparse" and x.ndim and dtype.itemsize > 1:
        x = x.to_sparse()
    elif change == "meta":
        x = x.to("meta")
    elif change == "expand":
        x = x.expand(3, *x.shape)
    elif change in ("T", "flip") and x.ndim == 2:
        x = x.T if change == "T" or dtype.itemsize == 1 else x.flip(0).T
    return x


PANDAS_TYPES = [
    None,
    None,
    object,
    "category",
    "Int64",
    "Float64",
    "boolean",
    "string",
    "float32",
    "Sparse[float64]",
]
PANDAS_TYPES += [
    "datetime64[ns]",
    "int64[pyarrow]",
    "string[pyarrow]",
    "double[pyarrow]",
    "uint8",
    "complex128",
]
POLARS_TYPES = [None, None, pl.Categorical, pl.Int128, pl.Float32, pl.Boolean, pl.String, pl.Object, pl.UInt8]
POLARS_TYPES += [pl.Datetime, pl.Duration, pl.Decimal(20, 3), pl.Binary, pl.Null, pl.List(pl.Int64)]
ARROW_TYPES = [None, None, pa.float16(), pa.int8(), pa.bool_(), pa.string(), pa.large_string(), pa.null()]
ARROW_TYPES += [pa.decimal128(20, 3), pa.dictionary(pa.int32(), pa.string()), pa.timestamp("ns"), pa.binary()]


@st.composite
def frames(draw):
    library = draw(st.sampled_from(["pandas", "polars", "arrow", "dict"]))
    n, q = draw(st.integers(0, 6)), draw(st.integers(0, 3))
    names = draw(st.lists(NAMES, min_size=q, max_size=q))
    table = [draw(columns(min_size=n, max_size=n)) for _ in names]
    types = {"pandas": PANDAS_TYPES, "polars": POLARS_TYPES, "arrow": ARROW_TYPES, "dict": [None]}[library]
    chosen = [draw(st.sampled_from(types)) for _ in names]
    alone = q == 1 and draw(st.booleans())
    if library == "pandas":
        series = [build(lambda c=c, t=t: pd.Series(c, dtype=t)) for c, t in zip(table, chosen, strict=True)]
        frame = pd.concat(series, axis=1) if series else pd.DataFrame(index=range(n))
        frame.columns = names
        return frame.iloc[:, 0] if alone else frame[:: draw(st.sampled_from([1, -1, 2]))]
    if library == "polars":
        # polars panics, loudly, over these.
        assume(not any(isinstance(v, Decimal) and not v.is_finite() for column in table for v in column))
        series = [
            build(lambda m=m, c=c, t=t: pl.Series(str(m), c, dtype=t, strict=False))
            for m, c, t in zip(names, table, chosen, strict=True)
        ]
        return series[0] if alone else build(lambda: pl.DataFrame(series))
    if library == "arrow":
        series = [build(lambda c=c, t=t: pa.array(c, type=t)) for c, t in zip(table, chosen, strict=True)]
        return series[0] if alone else build(lambda: pa.table(series, names=[str(m) for m in names]))
    makers = [draw(st.sampled_from([list, tuple, pd.Series, np.array])) for _ in names]
    mixed = [build(lambda c=c, m=m: m(c)) for c, m in zip(table, makers, strict=True)]
    return dict(zip(names, mixed, strict=True))


RAGGED = st.lists(st.one_of(columns(), ENTRIES), max_size=4)
RECTANGLES = st.integers(0, 3).flatmap(lambda q: st.lists(columns(min_size=q, max_size=q), max_size=5))
OTHERS = [
    None,
    "abc",
    b"abc",
    bytearray(b"ab"),
    3,
    2.5,
    True,
    object(),
    int,
    {1.0, 2.0},
    {},
    [],
    (),
    [[]],
    [[[]]],
]
OTHERS += [
    {"a": 1},
    {"a": None},
    {"a": {"b": [1, 2]}},
    {"a": "text"},
    pl.LazyFrame({"a": [1]}),
    range(3),
    range(0),
]
OTHERS += [scipy.sparse.csr_matrix(np.eye(2)), scipy.sparse.csc_array(np.eye(2)), datetime.date(2020, 1, 1)]
OTHERS += [
    memoryview(b"abc"),
    np.float64(1),
    pd.NA,
    pd.NaT,
    pd.Index([1, 2]),
    pd.MultiIndex.from_tuples([(1, 2)]),
]
OTHERS += [
    pd.interval_range(0, 3),
    pd.period_range("2020", periods=2),
    pd.Categorical(["a", None]),
    np.random,
]
OTHERS += [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), Decimal(1)]
SELF_LIST, SELF_DICT = [], {}
SELF_LIST.append(SELF_LIST)
SELF_DICT["a"] = SELF_DICT
OTHERS += [SELF_LIST, SELF_DICT, {"a": SELF_LIST}, to_sensitive([1, 2])]
ANYTHING = st.one_of(
    frames(), frames(), arrays(), tensors(), columns(), RECTANGLES, RAGGED, st.sampled_from(OTHERS)
)


def outcome(call, arguments):
    """Return the result, or None after an error whose message has the usual grammar."""
    try:
        return call()
    except (ValueError, TypeError) as error:
        message = str(error)
        named = "|".join(map(re.escape, arguments))
        assert re.fullmatch(rf"'({named})' must .+?\. Got .+\. [A-Z][^\n]+\.", message, re.DOTALL), message
        return None


def rows_of(x):
    if isinstance(x, dict):
        return len(next(iter(x.values())))
    return x.num_rows if isinstance(x, pa.Table) else len(x)


def is_sound(values, dimensions):
    return (
        values.dtype == torch.float64
        and values.ndim == dimensions
        and values.numel() > 0
        and not values.requires_grad
        and bool(values.isfinite().all())
        and bool((values**2).isfinite().all())
    )


@hostile
@given(ANYTHING)
def test_a_matrix_is_sound_or_refused(x):
    result = outcome(lambda: to_matrix(x, name="data"), ["data"])
    if result is not None:
        assert is_sound(result, 2)
        assert len(result) == rows_of(x)
        assert torch.equal(result, to_matrix(x, name="data"))


@hostile
@given(ANYTHING)
def test_a_vector_is_sound_or_refused(x):
    result = outcome(lambda: to_vector(x, name="y"), ["y"])
    assert result is None or is_sound(result, 1)
    matrix = outcome(lambda: to_matrix(x, name="z"), ["z"])
    if result is not None:
        assert matrix.tolist() == [[v] for v in result.tolist()]
    else:
        assert matrix is None or matrix.shape[1] > 1


@hostile
@given(ANYTHING, st.integers(0, 6))
def test_weights_are_sound_or_refused(x, n):
    vector = outcome(lambda: to_vector(x), ["y"])
    n = n if vector is None or n == 0 else len(vector)
    result = outcome(lambda: to_weights(x, n_rows=n), ["sample_weight"])
    if x is not None and result is not None:
        assert is_sound(result, 1)
        assert len(result) == n
        assert (result >= 0).all()
        assert result.sum() > 0


@hostile
@given(ANYTHING, st.sampled_from([None, None, "continuous", "categorical", "other"]), st.booleans())
def test_sensitive_columns_are_sound_or_refused(x, kinds, allow_constant):
    arguments = ["sensitive_features", "kinds"]
    s = outcome(lambda: to_sensitive(x, kinds=kinds, allow_constant=allow_constant), arguments)
    if s is None:
        return
    assert is_sound(s.values, 2)
    assert len(s) >= 2
    assert len(set(s.names)) == len(s.names) == len(s.kinds) == len(s.categories) == s.values.shape[1]
    assert all(type(name) is str for name in s.names)
    for kind, labels, values in zip(s.kinds, s.categories, s.values.T, strict=True):
        assert allow_constant or values.min() < values.max()
        assert kind in ("continuous", "categorical")
        assert (labels is None) == (kind == "continuous")
        if labels is not None:
            assert sorted(set(values.tolist())) == list(range(len(labels)))
            assert {type(label) for label in labels} <= {str, bool, int, float}
    again = to_sensitive(x, like=s, allow_constant=allow_constant)
    assert torch.equal(again.values, s.values)
    assert again.categories == s.categories


@hostile
@given(ANYTHING)
def test_labels_partition_the_rows_or_are_refused(y):
    split = outcome(lambda: split_labels(y), ["y"])
    if split is not None:
        rows = torch.cat([one.rows for one in split.kept])
        assert sorted(rows.tolist()) == list(range(len(rows)))
        assert all(len(one.rows) for one in split.kept)
        labels = [one.value for one in split.kept]
        assert len(set(labels)) == len(labels) > 0
