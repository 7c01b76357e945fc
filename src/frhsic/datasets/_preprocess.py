"""The paper's preprocessing and splits."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder
from sklearn.utils import Bunch

from frhsic._checks import ArgumentError
from frhsic.datasets._frame import check_option

_SEED = 42


def make_preprocessor(
    bunch: Bunch, *, categories: Literal["paper", "onehot", "codes"] = "paper"
) -> ColumnTransformer:
    """Make the paper's preprocessing of ``bunch.data``: numbers scaled to [0, 1], categories one-hot.

    Scales (and medians for missing numbers) are learned in ``fit``: fit on the training rows only. The
    categories are those of the whole bunch, so that the number of columns is the same for every split, as
    published.

    Parameters
    ----------
    bunch : Bunch
        As returned by a ``fetch_*`` function, of any ``as_frame``.
    categories : {"paper", "onehot", "codes"}, default="paper"
        "codes" scales the survey's codes like numbers; "paper" does so for ACS Income and MEPS, whose codes
        the paper took as numbers (d = 9 for ACS Income), and one-hot for the others.

    Returns
    -------
    ColumnTransformer
        Unfitted; numbers come first, then the categories, in the order of ``bunch.feature_names``.

    Examples
    --------
    >>> from sklearn.utils import Bunch
    >>> X = np.array([[20.0, 0.0], [60.0, 2.0], [30.0, 1.0]])
    >>> small = Bunch(data=X, feature_names=["hours", "job"], categories={"job": list("abc")}, codes=False)
    >>> make_preprocessor(small).fit(X[:2]).transform(X)
    array([[0.  , 1.  , 0.  , 0.  ],
           [1.  , 0.  , 0.  , 1.  ],
           [0.25, 0.  , 1.  , 0.  ]])
    """
    check_option("categories", categories, ("paper", "onehot", "codes"))
    labels: dict[str, list[str]] = bunch.categories
    codes = bunch.codes if categories == "paper" else categories == "codes"
    if codes and not all(_is_code(label) for names in labels.values() for label in names):
        must, got = "be 'onehot' where categories have names", "'codes' for data with text categories"
        raise ArgumentError("categories", must, got, "Use 'onehot'.")
    positions = isinstance(bunch.data, np.ndarray)
    place = {name: i if positions else name for i, name in enumerate(bunch.feature_names)}
    numeric = [place[name] for name in bunch.feature_names if name not in labels]
    categorical = [place[name] for name in bunch.feature_names if name in labels]
    scaled = make_pipeline(SimpleImputer(strategy="median"), MinMaxScaler())
    if codes:
        encoded: Any = make_pipeline(
            FunctionTransformer(_to_float, feature_names_out="one-to-one"), MinMaxScaler()
        )
    else:
        encoded = OneHotEncoder(
            categories=[_values(names, positions) for names in labels.values()],
            handle_unknown="ignore",
            sparse_output=False,
        )
    return ColumnTransformer(
        [("numbers", scaled, numeric), ("categories", encoded, categorical)], verbose_feature_names_out=False
    )


def paper_split(n_samples: int, *, repeat: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row numbers of the two parts of one of the paper's random 80/20 splits.

    Split ``repeat`` is the permutation drawn with the seed 42 + ``repeat``; its first int(0.8 n) rows are for
    training. The paper has repeats 0 to 4.

    Parameters
    ----------
    n_samples : int
        Number of rows, at least 2.
    repeat : int, default=0
        Which split.

    Returns
    -------
    train, test : ndarray
        Row numbers, in the order drawn.

    Examples
    --------
    >>> train, test = paper_split(10)
    >>> train, test
    (array([8, 1, 5, 0, 7, 2, 9, 4]), array([3, 6]))
    """
    if n_samples < 2 or repeat < 0:
        must, got = "be at least 2 and 'repeat' at least 0", f"{n_samples!r} and {repeat!r}"
        raise ArgumentError("n_samples", must, got, "Pass the number of rows and a repeat from 0 to 4.")
    order = np.random.RandomState(_SEED + repeat).permutation(n_samples)
    n_train = int(0.8 * n_samples)
    return order[:n_train], order[n_train:]


def _is_code(name: str) -> bool:
    return name.lstrip("-").isdigit()


def _values(names: list[str], positions: bool) -> NDArray[Any]:
    """Return what the cells of a categorical column hold: names in frames, codes or positions in arrays."""
    if not positions:
        return np.array(names, dtype=object)
    return np.array(names if all(map(_is_code, names)) else range(len(names)), dtype=np.float64)


def _to_float(X: Any) -> NDArray[np.float64]:
    return np.asarray(X).astype(np.float64)
