"""A table of numbers and labels becomes one dense float64 matrix, by rules learned in ``fit``.

The fitted state is plain data, so that a saved model needs no code to be loaded.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Self, TypeAlias

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from frhsic._checks import ArgumentError
from frhsic._text import list_names
from frhsic.data import Block, read_blocks, to_label, wrap_native

_Floats: TypeAlias = NDArray[np.float64]

_SCALINGS = ("standard", "minmax", "none")
_STATE = {"scaling": str, "max_categories": int, "named": bool, "columns": list}
_NUMERIC = {"kind": str, "name": str, "median": float, "center": float, "scale": float}
_CATEGORICAL = {"kind": str, "name": str, "categories": list, "missing": bool}


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Dense matrix of a table: numbers imputed and scaled, labels one-hot, columns in the order of the table.

    A number becomes ``(x - center) / scale`` with the training median for a missing x, a label one 0/1 column
    per category. Integers, floats, decimals and booleans (0 and 1) are numbers, whatever their values.
    Strings, categories and enums are labels. Dates, durations, bytes and nested entries are an error.

    Parameters
    ----------
    scaling : {"standard", "minmax", "none"}, default="standard"
        Center and scale are mean and standard deviation, or minimum and range, or 0 and 1. What is constant
        in training becomes 0 for good, unless "none" leaves it alone.
    max_categories : int, default=100
        A label column with more categories in training is an error: it is probably an identifier.

    Attributes
    ----------
    columns_ : tuple
        What was learned, one entry per column.
    n_features_in_ : int
        Number of columns in ``fit``.
    feature_names_in_ : ndarray of str
        Their names; only if the table in ``fit`` had names (those of a frame are made strings).

    Notes
    -----
    Named columns are matched by name in ``transform``, in any order and from any frame library. Categories
    are compared by their text and sorted; an unknown one becomes zeros. A missing label has a column of its
    own if labels were missing in training, and becomes zeros otherwise.

    Examples
    --------
    >>> encoder = TableEncoder().fit({"age": [20, None, 60], "job": ["chef", "nurse", "chef"]})
    >>> encoder.get_feature_names_out()
    array(['age', 'job_chef', 'job_nurse'], dtype=object)
    >>> encoder.transform({"job": ["nurse", "pilot"], "age": [None, 40]})
    array([[0., 0., 1.],
           [0., 0., 0.]])
    """

    def __init__(
        self, *, scaling: Literal["standard", "minmax", "none"] = "standard", max_categories: int = 100
    ) -> None:
        self.scaling = scaling
        self.max_categories = max_categories

    def fit(self, X: object, y: object = None) -> Self:  # noqa: ARG002
        """Learn medians, scales and categories from ``X`` ``(n, d)``: a frame, dict of columns or array."""
        self._check_params()
        named, table = _table(X)
        columns = [_learn(block, self.scaling, self.max_categories) for block in table.values()]
        return self._remember(columns, named)

    def transform(self, X: object) -> _Floats:
        """Encode ``X`` ``(n, d)`` as a finite float64 matrix ``(n, p)`` by what ``fit`` learned."""
        check_is_fitted(self)
        blocks = self._match(*_table(X))
        return np.column_stack([c.encode(block) for c, block in zip(self.columns_, blocks, strict=True)])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Name the ``p`` columns: ``age``, ``job_chef``, ``job_missing``; a name already taken gets a "_"."""
        check_is_fitted(self)
        names = [column.name for column in self.columns_]
        # The words "input_features ..." are those that the checks of scikit-learn look for.
        if input_features is not None:
            given = [str(name) for name in input_features]
            if self._named and given != names:
                must = "be the names in 'fit': input_features is not equal to feature_names_in_"
                raise ArgumentError("input_features", must, list_names(given), "Leave 'input_features' out.")
            if len(given) != len(names):
                must = f"name every column: input_features should have length equal to {len(names)}"
                raise ArgumentError("input_features", must, len(given), "Leave 'input_features' out.")
            names = given
        titles: dict[str, None] = {}
        for name, column in zip(names, self.columns_, strict=True):
            for suffix in column.suffixes:
                title = name + suffix
                while title in titles:
                    title += "_"
                titles[title] = None
        return np.array(list(titles), dtype=object)

    def get_state(self) -> dict[str, Any]:
        """Return what was learned as plain data for JSON; it holds the labels of the training data."""
        check_is_fitted(self)
        return {
            "scaling": str(self.scaling),
            "max_categories": int(self.max_categories),
            "named": self._named,
            "columns": [column.to_dict() for column in self.columns_],
        }

    @classmethod
    def from_state(cls, state: object) -> Self:
        """Restore an encoder from ``get_state()``; anything else, however it was made, is a ValueError."""
        plain = _fields(state, _STATE, "be")
        encoder = cls(scaling=plain["scaling"], max_categories=plain["max_categories"])
        encoder._check_params()
        columns = [_restore(entry, j) for j, entry in enumerate(plain["columns"])]
        names = [column.name for column in columns]
        _demand(len(names) > 0, "have at least one column", "none")
        _demand(len(set(names)) == len(names), "have distinct column names", "one name twice")
        plausible = plain["named"] or names == [f"x{j}" for j in range(len(names))]
        _demand(plausible, "call unnamed columns x0, x1, ...", "other names")
        return encoder._remember(columns, plain["named"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    @property
    def _named(self) -> bool:
        return "feature_names_in_" in self.__dict__

    def _check_params(self) -> None:
        if not isinstance(self.scaling, str) or self.scaling not in _SCALINGS:
            must = f"be one of {list_names(_SCALINGS)}"
            raise ArgumentError("scaling", must, list_names([self.scaling]), "Choose one.")
        most: object = self.max_categories
        if isinstance(most, bool) or not isinstance(most, numbers.Integral) or most < 1:
            must = "be an integer of at least 1"
            raise ArgumentError("max_categories", must, list_names([most]), "Pass 100, say.")

    def _remember(self, columns: list[_Number | _Labels], named: bool) -> Self:
        self.columns_ = tuple(columns)
        self.n_features_in_ = len(columns)
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        if named:
            self.feature_names_in_ = np.array([column.name for column in columns], dtype=object)
        return self

    def _match(self, named: bool, table: dict[str, Block]) -> list[Block]:
        """Put columns into the order of ``fit``: by name, or by position if ``fit`` saw no names."""
        names = [column.name for column in self.columns_]
        must = "'X' must have the columns of 'fit'"
        if self._named and not named:
            own = f"have the column names of 'fit', {list_names(names)}"
            raise ArgumentError("X", own, "a table without names", "Pass a frame or a dict of columns.")
        if self._named:
            absent = [name for name in names if name not in table]
            extra = [name for name in table if name not in names]
            if absent or extra:
                found = f"Absent: {list_names(absent) or 'none'}; unknown: {list_names(extra) or 'none'}"
                raise ValueError(f"{must}. {found}. Add, drop or rename columns.")
        elif len(table) != len(names):
            wanted = f"TableEncoder is expecting {len(names)} features as input"
            found = f"X has {len(table)} features, but {wanted}"
            raise ValueError(f"{must}. {found}. Pass the same columns in the same order.")
        return [table[name] for name in names] if self._named else list(table.values())


@dataclass(frozen=True)
class _Number:
    name: str
    median: float
    center: float
    scale: float
    suffixes = ("",)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "numeric", **asdict(self)}

    def encode(self, block: Block) -> _Floats:
        block, missing = block.settle_gaps()
        if missing.all():
            x = np.full(len(missing), self.median)
        elif block.array.dtype == object:
            must = f"hold numbers{block.place} as in 'fit'"
            raise ArgumentError("X", must, "labels", "Convert the column to numbers.")
        else:
            x = np.where(missing, self.median, block.to_numbers())
        if self.scale == 0.0:
            return np.zeros_like(x)
        with np.errstate(all="ignore"):
            x = (x - self.center) / self.scale
        # A number far outside the training range may become too large.
        return replace(block, array=x).to_numbers()


@dataclass(frozen=True)
class _Labels:
    name: str
    categories: tuple[str, ...]
    missing: bool

    @property
    def suffixes(self) -> tuple[str, ...]:
        return tuple(f"_{category}" for category in self.categories) + ("_missing",) * self.missing

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "categorical", **asdict(self), "categories": list(self.categories)}

    def encode(self, block: Block) -> _Floats:
        block, missing = block.settle_gaps()
        if not missing.all() and block.array.dtype != object:
            must, got = f"hold labels{block.place} as in 'fit'", "numbers or booleans"
            raise ArgumentError("X", must, got, "Convert the column to strings or categories.")
        code = {category: j for j, category in enumerate(self.categories)}
        codes = np.full(len(missing), len(self.categories) if self.missing else -1)
        codes[~missing] = [code.get(text, -1) for text in _texts(block.array[~missing])]
        rows = np.flatnonzero(codes >= 0)
        encoded = np.zeros((len(codes), len(self.suffixes)))
        encoded[rows, codes[rows]] = 1.0
        return encoded


def _learn(block: Block, scaling: str, max_categories: int) -> _Number | _Labels:
    block, missing = block.settle_gaps()
    name = str(block.name)
    if missing.all():
        must = f"hold at least one value{block.place} in training"
        raise ArgumentError("X", must, f"missing values in all {len(missing)} rows", "Drop the column.")
    if block.array.dtype == object:
        categories = sorted(set(_texts(block.array[~missing])))
        if len(categories) > max_categories:
            got = f"{len(categories)}, like an identifier"
            fix = "Drop it, join rare categories, turn text into numbers, or raise 'max_categories'."
            raise ArgumentError("X", f"have at most {max_categories} categories{block.place}", got, fix)
        return _Labels(name, tuple(categories), bool(missing.any()))
    x = block.to_numbers()
    median = float(np.median(x[~missing]))
    x = np.where(missing, median, x)
    low, high = float(x.min()), float(x.max())
    if scaling == "none":
        return _Number(name, median, 0.0, 1.0)
    if scaling == "minmax":
        return _Number(name, median, low, high - low)
    # The standard deviation of equal numbers may round to a little above zero.
    return _Number(name, median, float(x.mean()), float(x.std()) if low < high else 0.0)


def _table(x: object) -> tuple[bool, dict[str, Block]]:
    """Read a table into its columns, and whether they have names; those of an array are x0, x1, ..."""
    # First, because scipy's "dok" format would be read as a dict of columns.
    if issparse(x):
        raise TypeError(f"'X' must be dense. Got a sparse '{type(x).__name__}'. Call '.toarray()' first.")
    # The words "Complex data ...", "0 feature(s) ..." and "Reshape your data" are those that the checks of
    # scikit-learn look for.
    if isinstance(x, np.ndarray) and x.dtype.kind == "c":
        fix = "Complex data not supported: pass the real and the imaginary part as two columns."
        raise ArgumentError("X", "hold numbers or labels", "complex numbers", fix)
    if isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[1] == 0:
        got = f"0 feature(s) (shape={x.shape}) while a minimum of 1 is required"
        raise ArgumentError("X", "have columns", got, "Pass at least one column.")
    single = nw.dependencies.is_into_series(wrap_native(x))
    blocks = [] if single else read_blocks(x, "X")
    if single or any(block.name is None and block.array.ndim == 1 for block in blocks):
        fix = "Reshape your data to (rows, columns), or pass a frame."
        raise ArgumentError("X", "be a table with two dimensions", "a single column or row", fix)
    blocks[0].check_rows()
    if blocks[0].name is not None:
        return True, {str(block.name): block for block in blocks}
    columns = [column for block in blocks for column in block.columns()]
    return False, {f"x{j}": Block(column.array, "X", f"x{j}") for j, column in enumerate(columns)}


def _texts(array: NDArray[Any]) -> list[str]:
    labels = map(to_label, array.tolist())
    # pandas turns whole numbers that are categories into floats where one of them is missing.
    return [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in labels]


def _restore(entry: object, j: int) -> _Number | _Labels:
    where = f"hold in 'columns[{j}]'"
    if isinstance(entry, dict) and entry.get("kind") == "numeric":
        plain = _fields(entry, _NUMERIC, where)
        number = _Number(**{key: value for key, value in plain.items() if key != "kind"})
        finite = all(map(math.isfinite, (number.median, number.center, number.scale)))
        _demand(finite and number.scale >= 0, f"{where} finite numbers and no negative 'scale'", "others")
        # What stands for a missing number must itself be an accepted one.
        far = number.scale > 0 and abs((number.median - number.center) / number.scale) > 1e150
        _demand(not far, f"{where} a 'median' within 1e150 times 'scale' of 'center'", "another")
        return number
    plain = _fields(entry, _CATEGORICAL, where)
    categories = plain["categories"]
    _demand(plain["kind"] == "categorical", f"{where} the kind 'numeric' or 'categorical'", "another")
    texts = len(categories) > 0 and all(type(v) is str for v in categories)
    _demand(texts, f"{where} categories of text", "others")
    _demand(all(a < b for a, b in pairwise(categories)), f"{where} sorted and distinct categories", "others")
    return _Labels(plain["name"], tuple(categories), plain["missing"])


def _fields(x: Any, fields: dict[str, type], where: str) -> dict[str, Any]:
    """Take a dict with exactly these keys, each value of exactly its type: JSON makes no other."""
    wanted = ", ".join(f"'{key}' ({kind.__name__})" for key, kind in fields.items())
    exact = type(x) is dict and {key: type(v) for key, v in x.items()} == fields
    _demand(exact, f"{where} a dict of {wanted}", f"another '{type(x).__name__}'")
    return x


def _demand(ok: bool, rule: str, got: str) -> None:
    if not ok:
        raise ArgumentError("state", rule, got, "Pass what 'get_state' returned, unchanged.")
