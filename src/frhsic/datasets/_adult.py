"""Adult: who earned more than 50,000 dollars a year in the United States of 1994."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from frhsic._files import PathLike
from frhsic.datasets._fetch import read
from frhsic.datasets._files import ADULT_TEST, ADULT_TRAIN
from frhsic.datasets._frame import AsFrame, Column, check_as_frame, check_option, make_bunch

_COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
    "income",
]  # fmt: skip
_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")

_DESCR = """
Adult (Census Income)
=====================

Source: UCI Machine Learning Repository, dataset 2 (B. Becker, R. Kohavi, 1996), drawn from the Current
Population Survey of 1994, https://archive.ics.uci.edu/dataset/2/adult. Licence: CC BY 4.0.

Each row is a person older than 16 with an income. The target is 1 if the yearly income was above 50,000
dollars. The sensitive attribute of the paper is age (17 to 90).

What was done: blanks around the values and the full stop behind the labels of the test part were taken away.
With missing="drop" (the paper's text) rows with a "?" are left out: 30,162 of 32,561 training rows and
15,060 of 16,281 test rows remain. With missing="category" (the published scripts, n = 32,561 and d = 107
after one-hot) "?" is a category of its own. fnlwgt, the survey weight, is both sample_weight and, as in the
scripts, a feature.

Known problems:

- The threshold is high for 1994: the share above it is 24 %, and which methods look good depends on it
  (Ding, Hardt, Miller, Schmidt, "Retiring Adult", 2021). The data are thirty years old; fetch_acs_income is
  the successor.
- fnlwgt says how many people a row stands for. It is no property of a person; drop it unless you compare
  with the published figures.
- education and education-num are the same variable twice. Ages above 90 are recorded as 90 (43 training
  rows), capital gains above 99,998 as 99,999 (159 rows); 47 % of the training rows work exactly 40 hours a
  week.
- 24 training rows are exact copies of others, 3,465 if fnlwgt is left out.
- "?" is not missing at random: occupation is missing wherever workclass is (1,836 training rows), and of the
  rows with a "?" only 14 % have the target 1.
"""


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
        True for pandas, False for float64 arrays with category numbers.
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
    texts = [read(file, data_home=data_home, cache=cache).decode("ascii") for file in files]
    # The test part begins with a remark ("|1x3 Cross validator") and ends its labels with a full stop.
    rows = [
        line.rstrip(".").split(", ")
        for text in texts
        for line in text.splitlines()
        if line and line[0] != "|"
    ]
    if missing == "drop":
        rows = [row for row in rows if "?" not in row]
    columns: dict[str, Column] = {}
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
        codes=False,
        description=_DESCR,
    )
    return (bunch.data, bunch.target) if return_X_y else bunch
