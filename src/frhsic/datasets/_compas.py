"""COMPAS: who was arrested again within two years in Broward County, Florida."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from frhsic._files import PathLike
from frhsic.datasets._fetch import read
from frhsic.datasets._files import COMPAS
from frhsic.datasets._frame import AsFrame, Column, check_as_frame, check_option, make_bunch, pack_series

# The published scripts' choice. Everything else of the file stays behind: names, birth dates, case numbers
# and other dates tell who a person is; is_recid, r_*, vr_*, event, start and end tell the target.
_NUMBERS = ("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")
_DAYS = ("days_b_screening_arrest", "c_days_from_compas")  # with blanks in the unfiltered rows
_CATEGORIES = ("c_charge_degree", "sex", "race")

_DESCR = """
COMPAS (two-year recidivism, Broward County)
============================================

Source: ProPublica, "Machine Bias" (J. Angwin, J. Larson, S. Mattu, L. Kirchner, 2016),
https://github.com/propublica/compas-analysis at commit bafff5d, from Florida public records. Licence: none is
stated; published for re-analysis.

Each row is a person who was scored by COMPAS in 2013 or 2014. The target is 1 if the person was charged
again within two years. The sensitive attribute of the paper is age (18 to 96).

What was done: the file names real people. Names, birth dates, case numbers, and every date are dropped at
load and cannot be had from here; days between two events are kept. Columns that tell the target (later
charges, follow-up times) are dropped too. Two columns occur twice in the file (decile_score, priors_count),
with equal values; one of each is read. With rows="filtered" (the paper, ProPublica) 6,172 of 7,214 rows
remain: arrested within 30 days of the screening, known outcome, no mere traffic offence, a score given (only
the first condition leaves any row of this file out). The risk score of the vendor, 1 to 10, is decile_score
beside the data: it is a prediction to be audited, not a feature.

Known problems:

- The target is being charged again, not offending again; policing and charging enter it.
- ProPublica cut the two-year window wrongly (M. Barenstein, "ProPublica's COMPAS data revisited", 2019): of
  people screened after 1 April 2014 only those who were charged again are in the file (868 of 868 filtered
  rows have target 1; 37 % of the others). The overall share of the target, 46 %, is too high.
- One county, two years, people who were jailed: no sample of any wider population.
- Age is not the age at the screening: by the file's own dates it is one to four years higher in every row.
- c_days_from_compas reaches 9,485 days; such charges are not those the score was about. Two of the six races
  have few people (31 Asian, 11 Native American in the filtered rows).
- COMPAS is so often used that results on it say little; see "It's COMPASlicated" (Bao et al., 2021) before
  use.
"""


def fetch_compas(
    *,
    rows: Literal["filtered", "all"] = "filtered",
    sensitive: str | Sequence[str] = "age",
    data_home: PathLike | None = None,
    cache: bool = True,
    as_frame: AsFrame = True,
    return_X_y: bool = False,
) -> Bunch:
    """Load COMPAS: 6,172 defendants of Broward County, charged again within two years, sensitive age.

    Names, birth dates, case numbers and dates of the published file are dropped at load.

    Parameters
    ----------
    rows : {"filtered", "all"}, default="filtered"
        ProPublica's filter, as in the paper, or all 7,214 rows (with missing values in two columns).
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
        As of :func:`fetch_adult`, without weights, and ``decile_score``, the vendor's score, beside the data.

    Examples
    --------
    >>> compas = fetch_compas()
    >>> compas.data.shape, round(float(compas.target.mean()), 4)
    ((6172, 9), 0.4551)
    """
    check_option("rows", rows, ("filtered", "all"))
    check_as_frame(as_frame)
    text = read(COMPAS, data_home=data_home, cache=cache).decode("utf-8")
    header, *lines = csv.reader(io.StringIO(text))

    def column(name: str) -> Column:
        place = header.index(name)  # the first of a name that occurs twice
        return np.array([line[place] or "nan" for line in lines])

    columns: dict[str, Column] = {name: column(name).astype(np.int64) for name in _NUMBERS}
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
    bunch = make_bunch(
        columns,
        ("two_year_recid", target),
        sensitive=sensitive,
        categorical=_CATEGORIES,
        weight=None,
        as_frame=as_frame,
        task="classification",
        codes=False,
        description=_DESCR,
    )
    bunch.decile_score = pack_series("decile_score", score, as_frame)
    return (bunch.data, bunch.target) if return_X_y else bunch
