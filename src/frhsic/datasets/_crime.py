"""Communities and Crime: violent crimes in 1,994 communities of the United States."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from sklearn.utils import Bunch

from frhsic._files import PathLike
from frhsic.datasets._fetch import read_file
from frhsic.datasets._files import CRIME
from frhsic.datasets._frame import AsFrame, Values, check_as_frame, check_option, make_bunch, read_description

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
        The published scripts use "householdsize".
    data_home, cache, as_frame, return_X_y
        As in :func:`fetch_adult`.

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
    text = read_file(CRIME, data_home=data_home, cache=cache).decode("ascii")
    rows = [line.replace("?", "nan").split(",")[_NOT_PREDICTIVE:] for line in text.splitlines()]
    values = np.array(rows, dtype=np.float64)  # (1994, 123)
    columns: dict[str, Values] = dict(zip(_COLUMNS[_NOT_PREDICTIVE:], values.T, strict=True))
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
        as_frame=as_frame,
        task="regression",
        description=read_description("crime"),
    )
    return (bunch.data, bunch.target) if return_X_y else bunch
