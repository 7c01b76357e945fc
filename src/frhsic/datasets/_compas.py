"""COMPAS: who was arrested again within two years in Broward County, Florida."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from frhsic._files import PathLike
from frhsic.datasets import _frame
from frhsic.datasets._fetch import read_file
from frhsic.datasets._files import COMPAS

# The published scripts' choice. Everything else of the file stays behind: names, birth dates, case numbers
# and other dates tell who a person is; is_recid, r_*, vr_*, event, start and end tell the target.
_NUMBERS = ("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")
_DAYS = ("days_b_screening_arrest", "c_days_from_compas")  # with blanks in the unfiltered rows
_CATEGORIES = ("c_charge_degree", "sex", "race")


def fetch_compas(
    *,
    rows: Literal["filtered", "all"] = "filtered",
    sensitive: str | Sequence[str] = "age",
    data_home: PathLike | None = None,
    cache: bool = True,
    as_frame: _frame.AsFrame = True,
    return_X_y: bool = False,
) -> Bunch:
    """Load COMPAS: 6,172 defendants of Broward County, charged again within two years, sensitive age.

    Names, birth dates, case numbers and dates of the published file are dropped at load.

    Parameters
    ----------
    rows : {"filtered", "all"}, default="filtered"
        ProPublica's filter, as in the paper, or all 7,214 rows (with missing values in two columns).
    sensitive, data_home, cache, as_frame, return_X_y
        As in :func:`fetch_adult`.

    Returns
    -------
    Bunch or tuple
        As of :func:`fetch_adult`, without weights, and ``decile_score``, the vendor's score, beside the data.

    Examples
    --------
    >>> compas = fetch_compas()
    >>> compas.data.shape, round(float(compas.target.mean()), 4)
    ((6172, 9), 0.4551)
    """
    _frame.check_option("rows", rows, ("filtered", "all"))
    _frame.check_as_frame(as_frame)
    text = read_file(COMPAS, data_home=data_home, cache=cache).decode("utf-8")
    header, *lines = csv.reader(io.StringIO(text))

    def column(name: str) -> _frame.Values:
        place = header.index(name)  # the first of a name that occurs twice
        return np.array([line[place] or "nan" for line in lines])

    columns: dict[str, _frame.Values] = {name: column(name).astype(np.int64) for name in _NUMBERS}
    columns |= {name: column(name).astype(np.float64) for name in _DAYS}
    columns |= {name: column(name) for name in _CATEGORIES}
    target, score = column("two_year_recid").astype(np.int64), column("decile_score").astype(np.int64)
    if rows == "filtered":
        keep = (
            (np.abs(columns["days_b_screening_arrest"]) <= 30)
            & (column("is_recid") != "-1")
            & (columns["c_charge_degree"] != "O")
            & (column("score_text") != "N/A")
        )
        columns = {name: values[keep] for name, values in columns.items()}
        target, score = target[keep], score[keep]
    bunch = _frame.make_bunch(
        columns,
        ("two_year_recid", target),
        sensitive=sensitive,
        categorical=_CATEGORIES,
        as_frame=as_frame,
        task="classification",
        description=_frame.read_description("compas"),
    )
    bunch.decile_score = _frame.pack_series("decile_score", score, as_frame)
    return (bunch.data, bunch.target) if return_X_y else bunch
