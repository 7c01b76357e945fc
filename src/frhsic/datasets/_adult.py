"""Adult: who earned more than 50,000 dollars a year in the United States of 1994."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from frhsic._files import PathLike
from frhsic.datasets._fetch import read_file
from frhsic.datasets._files import ADULT_TEST, ADULT_TRAIN
from frhsic.datasets._frame import AsFrame, Values, check_as_frame, check_option, make_bunch, read_description

_COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
    "income",
]  # fmt: skip
_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")


def fetch_adult(
    *,
    subset: Literal["train", "test", "all"] = "train",
    missing: Literal["drop", "category"] = "drop",
    sensitive: str | Sequence[str] = "age",
    data_home: PathLike | None = None,
    cache: bool = True,
    as_frame: AsFrame = True,
    return_X_y: bool = False,
) -> Bunch:
    """Load Adult, the 1994 census income data: 30,162 people, income above 50,000 dollars, sensitive age.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The published part; the paper uses the training part only and splits it again.
    missing : {"drop", "category"}, default="drop"
        Leave out rows with a "?", as the paper says, or keep "?" as a category, as its scripts do.
    sensitive : str or sequence of str, default="age"
        Columns that are moved from ``data`` to ``sensitive_features``.
    data_home : path-like, default=None
        The folder of the data files; by default ``FRHSIC_DATA_HOME``, else the user's cache folder.
    cache : bool, default=True
        Keep what was downloaded in that folder.
    as_frame : bool or {"pandas", "polars"}, default=True
        True for pandas, False for float64 arrays with the number of each category.
    return_X_y : bool, default=False
        Return ``(data, target)`` only.

    Returns
    -------
    Bunch or tuple
        ``data``, ``target`` (0 or 1), ``sensitive_features``, ``sample_weight``, ``feature_names``,
        ``categories`` (of each categorical feature), ``target_name``, ``sensitive_names``,
        ``weight_name``, ``task``, ``codes`` and ``DESCR``.

    Examples
    --------
    >>> adult = fetch_adult()
    >>> adult.data.shape, round(float(adult.target.mean()), 4)
    ((30162, 13), 0.2489)
    """
    check_option("subset", subset, ("train", "test", "all"))
    check_option("missing", missing, ("drop", "category"))
    check_as_frame(as_frame)
    files = {"train": [ADULT_TRAIN], "test": [ADULT_TEST], "all": [ADULT_TRAIN, ADULT_TEST]}[subset]
    texts = [read_file(file, data_home=data_home, cache=cache).decode("ascii") for file in files]
    # The test part begins with a remark ("|1x3 Cross validator") and ends its labels with a full stop.
    lines = [line.rstrip(".") for text in texts for line in text.splitlines()]
    rows = [line.split(", ") for line in lines if line and line[0] != "|"]
    if missing == "drop":
        rows = [row for row in rows if "?" not in row]
    columns: dict[str, Values] = {}
    for name, values in zip(_COLUMNS, zip(*rows, strict=True), strict=True):
        columns[name] = np.array(values, dtype=np.int64 if name in _NUMBERS else np.str_)
    target = (columns.pop("income") == ">50K").astype(np.int64)
    bunch = make_bunch(
        columns,
        ("income_above_50k", target),
        sensitive=sensitive,
        categorical=[name for name in columns if name not in _NUMBERS],
        weight=("fnlwgt", columns["fnlwgt"]),
        as_frame=as_frame,
        task="classification",
        description=read_description("adult"),
    )
    return (bunch.data, bunch.target) if return_X_y else bunch
