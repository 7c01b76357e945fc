"""Communities and Crime: violent crimes in 1,994 communities of the United States."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from frhsic._files import PathLike
from frhsic.datasets._fetch import read
from frhsic.datasets._files import CRIME
from frhsic.datasets._frame import AsFrame, Column, check_as_frame, check_option, make_bunch

_COLUMNS = [
    "state", "county", "community", "communityname", "fold", "population", "householdsize",
    "racepctblack", "racePctWhite", "racePctAsian", "racePctHisp", "agePct12t21", "agePct12t29",
    "agePct16t24", "agePct65up", "numbUrban", "pctUrban", "medIncome", "pctWWage", "pctWFarmSelf",
    "pctWInvInc", "pctWSocSec", "pctWPubAsst", "pctWRetire", "medFamInc", "perCapInc", "whitePerCap",
    "blackPerCap", "indianPerCap", "AsianPerCap", "OtherPerCap", "HispPerCap", "NumUnderPov",
    "PctPopUnderPov", "PctLess9thGrade", "PctNotHSGrad", "PctBSorMore", "PctUnemployed", "PctEmploy",
    "PctEmplManu", "PctEmplProfServ", "PctOccupManu", "PctOccupMgmtProf", "MalePctDivorce",
    "MalePctNevMarr", "FemalePctDiv", "TotalPctDiv", "PersPerFam", "PctFam2Par", "PctKids2Par",
    "PctYoungKids2Par", "PctTeen2Par", "PctWorkMomYoungKids", "PctWorkMom", "NumIlleg", "PctIlleg",
    "NumImmig", "PctImmigRecent", "PctImmigRec5", "PctImmigRec8", "PctImmigRec10", "PctRecentImmig",
    "PctRecImmig5", "PctRecImmig8", "PctRecImmig10", "PctSpeakEnglOnly", "PctNotSpeakEnglWell",
    "PctLargHouseFam", "PctLargHouseOccup", "PersPerOccupHous", "PersPerOwnOccHous", "PersPerRentOccHous",
    "PctPersOwnOccup", "PctPersDenseHous", "PctHousLess3BR", "MedNumBR", "HousVacant", "PctHousOccup",
    "PctHousOwnOcc", "PctVacantBoarded", "PctVacMore6Mos", "MedYrHousBuilt", "PctHousNoPhone",
    "PctWOFullPlumb", "OwnOccLowQuart", "OwnOccMedVal", "OwnOccHiQuart", "RentLowQ", "RentMedian",
    "RentHighQ", "MedRent", "MedRentPctHousInc", "MedOwnCostPctInc", "MedOwnCostPctIncNoMtg",
    "NumInShelters", "NumStreet", "PctForeignBorn", "PctBornSameState", "PctSameHouse85", "PctSameCity85",
    "PctSameState85", "LemasSwornFT", "LemasSwFTPerPop", "LemasSwFTFieldOps", "LemasSwFTFieldPerPop",
    "LemasTotalReq", "LemasTotReqPerPop", "PolicReqPerOffic", "PolicPerPop", "RacialMatchCommPol",
    "PctPolicWhite", "PctPolicBlack", "PctPolicHisp", "PctPolicAsian", "PctPolicMinor",
    "OfficAssgnDrugUnits", "NumKindsDrugsSeiz", "PolicAveOTWorked", "LandArea", "PopDens",
    "PctUsePubTrans", "PolicCars", "PolicOperBudg", "LemasPctPolicOnPatr", "LemasGangUnitDeploy",
    "LemasPctOfficDrugUn", "PolicBudgPerPop", "ViolentCrimesPerPop",
]  # fmt: skip
_TARGET = "ViolentCrimesPerPop"
_NOT_PREDICTIVE = 5  # state, county, community, communityname, fold come first

_DESCR = """
Communities and Crime (normalised)
==================================

Source: UCI Machine Learning Repository, dataset 183 (M. Redmond, 2009), from the 1990 census, the 1990 LEMAS
survey of police departments and the 1995 FBI Uniform Crime Report,
https://archive.ics.uci.edu/dataset/183/communities+and+crime. Licence: CC BY 4.0.

Each row is a community. The target is the number of violent crimes per head, scaled to 0 to 1 by the donor.
The sensitive attribute of the paper's text is racial composition, here racepctblack, the (scaled) share of
Black people.

What was done: the five columns that are not predictive (state, county, community, name, fold) are left out.
With missing="impute" (the paper) the 22 columns with more than 20 % missing values are dropped and the one
missing cell that remains is filled with the median of its column: 100 columns, of which one is sensitive (d
= 99). With missing="keep" all 122 columns come with their gaps.

The published scripts take column 6 of the file as sensitive. That is householdsize, not racial composition
(column 7), which stays among their features: sensitive="householdsize" reproduces the published figures.

Known problems:

- The target counts crimes that the police recorded and reported. Communities where rape counts were missing
  were left out by the donor, many of them in the Midwest.
- Scaling was done column by column; values beyond three standard deviations were set to 0 or 1 (44
  communities have target 1). Equal numbers in two columns do not mean equal shares: the four racial columns
  do not add up to one.
- The police columns (LEMAS) are missing for 1,675 communities, which have small departments: not at random.
- Rows are places, not persons: a dependence on a share of a population says nothing about a person. Many
  columns are near copies of each other (racepctblack and racePctWhite, householdsize and PersPerFam), so
  that taking the sensitive column out of the data hides little.
"""


def fetch_crime(
    *,
    missing: Literal["impute", "keep"] = "impute",
    sensitive: str | Sequence[str] = "racepctblack",
    data_home: PathLike | None = None,
    cache: bool = True,
    as_frame: AsFrame = True,
    return_X_y: bool = False,
) -> Bunch:
    """Load Communities and Crime: 1,994 communities, violent crimes per head, sensitive racial composition.

    Parameters
    ----------
    missing : {"impute", "keep"}, default="impute"
        Drop columns with more than 20 % missing values and fill the rest with medians, as in the paper, or
        keep all columns and their NaN.
    sensitive : str or sequence of str, default="racepctblack"
        Columns that are moved from ``data`` to ``sensitive_features``. The published scripts use
        "householdsize".
    data_home : path-like, default=None
        The folder of the data files; by default ``FRHSIC_DATA_HOME``, else the user's cache folder.
    cache : bool, default=True
        Keep what was downloaded in that folder.
    as_frame : bool or {"pandas", "polars"}, default=True
        True for pandas, False for float64 arrays.
    return_X_y : bool, default=False
        Return ``(data, target)`` only.

    Returns
    -------
    Bunch or tuple
        As of :func:`fetch_adult`, without weights; ``target`` is a number between 0 and 1.

    Examples
    --------
    >>> crime = fetch_crime()
    >>> crime.data.shape, round(float(crime.target.mean()), 4)
    ((1994, 99), 0.238)
    """
    check_option("missing", missing, ("impute", "keep"))
    check_as_frame(as_frame)
    text = read(CRIME, data_home=data_home, cache=cache).decode("ascii")
    rows = [line.replace("?", "nan").split(",")[_NOT_PREDICTIVE:] for line in text.splitlines()]
    values = np.array(rows, dtype=np.float64)  # (1994, 123)
    columns: dict[str, Column] = dict(zip(_COLUMNS[_NOT_PREDICTIVE:], values.T, strict=True))
    target = columns.pop(_TARGET)
    if missing == "impute":
        gaps = {name: np.isnan(column) for name, column in columns.items()}
        columns = {
            name: np.where(gaps[name], np.nanmedian(column), column)
            for name, column in columns.items()
            if gaps[name].mean() <= 0.2
        }
    bunch = make_bunch(
        columns,
        (_TARGET, target),
        sensitive=sensitive,
        categorical=(),
        weight=None,
        as_frame=as_frame,
        task="regression",
        codes=False,
        description=_DESCR,
    )
    return (bunch.data, bunch.target) if return_X_y else bunch
