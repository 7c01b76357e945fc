"""MEPS: who used much medical care in the United States of 2015 and 2016."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from sklearn.utils import Bunch

from frhsic._checks import ArgumentError
from frhsic._files import PathLike
from frhsic.datasets import _fetch, _frame
from frhsic.datasets._files import MEPS_2015, MEPS_2016, MEPS_2016_COUNT

_COLUMNS = [
    "REGION", "AGE", "sex", "race", "MARRY", "FTSTU", "ACTDTY", "HONRDC", "RTHLTH", "MNHLTH", "HIBPDX",
    "CHDDX", "ANGIDX", "MIDX", "OHRTDX", "STRKDX", "EMPHDX", "CHBRON", "CHOLDX", "CANCERDX", "DIABDX",
    "JTPAIN", "ARTHDX", "ARTHTYPE", "ASTHDX", "ADHDADDX", "PREGNT", "WLKLIM", "ACTLIM", "SOCLIM",
    "COGLIM", "DFHEAR42", "DFSEE42", "ADSMOK42", "PCS42", "MCS42", "K6SUM42", "PHQ242", "EMPST", "POVCAT",
    "INSCOV",
]  # fmt: skip
_NUMBERS = ("AGE", "PCS42", "MCS42", "K6SUM42")
_PAPER = [
    "AGE", "sex", "race", "MARRY", "REGION", "POVCAT", "INSCOV", "DIABDX", "ARTHDX", "ASTHDX", "CANCERDX",
    "MIDX", "STRKDX", "HIBPDX", "CHDDX", "ANGIDX", "OHRTDX",
]  # fmt: skip
_LAST_ROUND = [
    "ACTDTY", "HONRDC", "RTHLTH", "MNHLTH", "CHBRON", "JTPAIN", "PREGNT", "WLKLIM", "ACTLIM", "SOCLIM",
    "COGLIM", "EMPST", "REGION",
]  # fmt: skip
# year: (full-year file, panel, people after the filter)
_RELEASES = {2015: ("h181", 19, 15_830), 2016: ("h192", 21, 15_675)}

_URL = "https://meps.ahrq.gov/mepsweb/data_files/pufs/{release}ssp.zip"


def fetch_meps(
    year: int = 2015,
    *,
    features: Literal["aif360", "paper"] = "aif360",
    target: Literal["ten_or_more", "count"] = "ten_or_more",
    missing: Literal["code", "nan", "drop"] = "code",
    sensitive: str | Sequence[str] = "AGE",
    data_home: PathLike | None = None,
    cache: bool = True,
    as_frame: _frame.AsFrame = True,
    return_X_y: bool = False,
) -> Bunch:
    """Load MEPS: 15,830 people, ten or more uses of medical care in a year, sensitive age.

    The checksums of the official files are not known here. A download is checked by its structure: a SAS
    transport file in a zip file, with the columns and, after the filter, the number of people expected.

    Parameters
    ----------
    year : {2015, 2016}, default=2015
        Panel 19 in 2015, as in the paper, or Panel 21 in 2016.
    features : {"aif360", "paper"}, default="aif360"
        All columns of AIF360, or those that the paper names.
    target : {"ten_or_more", "count"}, default="ten_or_more"
        A label, or the number of uses (a regression task); the local file of 2015 has no number.
    missing : {"code", "nan", "drop"}, default="code"
        Keep negative codes, turn those in the three scores into NaN, or leave rows out that have any.
    sensitive, data_home, cache, as_frame, return_X_y
        As in :func:`fetch_adult`; ``as_frame=False`` gives the survey's codes.

    Returns
    -------
    Bunch or tuple
        As of :func:`fetch_adult`; ``sample_weight`` is the survey's weight.

    Examples
    --------
    >>> meps = fetch_meps()
    >>> meps.data.shape, round(float(meps.target.mean()), 4)
    ((15830, 40), 0.1717)
    """
    _frame.check_option("year", year, tuple(_RELEASES))
    _frame.check_option("features", features, ("aif360", "paper"))
    _frame.check_option("target", target, ("ten_or_more", "count"))
    _frame.check_option("missing", missing, ("code", "nan", "drop"))
    _frame.check_as_frame(as_frame)
    table = _load(year, target == "count", data_home, cache)
    keep = np.isfinite(table["target"])
    names = _COLUMNS if features == "aif360" else _PAPER
    columns: dict[str, _frame.Values] = {name: table[name] for name in names}
    if missing == "drop":
        keep &= np.all([values >= 0 for values in columns.values()], axis=0)
    elif missing == "nan":
        scores = [name for name in _NUMBERS if name in columns]
        columns |= {name: np.where(columns[name] < 0, np.nan, columns[name]) for name in scores}
    columns = {name: values[keep] for name, values in columns.items()}
    for name, values in columns.items():
        if name not in ("PCS42", "MCS42") and np.isfinite(values).all():
            columns[name] = values.astype(np.int64)
    bunch = _frame.make_bunch(
        columns,
        (f"utilization_{target}", table["target"][keep].astype(np.int64)),
        sensitive=sensitive,
        categorical=[name for name in columns if name not in _NUMBERS],
        weight=("PERWT", table["weight"][keep]),
        as_frame=as_frame,
        task="classification" if target == "ten_or_more" else "regression",
        codes=True,
        description=_frame.read_description("meps"),
    )
    return (bunch.data, bunch.target) if return_X_y else bunch


def _load(year: int, count: bool, data_home: PathLike | None, cache: bool) -> dict[str, _frame.Values]:
    """Load the 41 columns, "target" and "weight", from the local extract or else the official file."""
    file = MEPS_2015 if year == 2015 else MEPS_2016
    release, weight = _RELEASES[year][0], f"PERWT{year - 2000}F"
    content = _fetch.find_file(file, _fetch.data_folder(data_home))
    if content is not None and not (count and year == 2015):
        table = _fetch.parse_csv(content)
        table["weight"], table["target"] = table.pop(weight), table.pop("Probability")
        if count:
            # Y = log(count + 2), for the same people in the same order.
            text = _fetch.read_file(MEPS_2016_COUNT, data_home=data_home, cache=cache).decode("ascii")
            logs = np.array([line.split(",")[3] or "nan" for line in text.splitlines()[1:]], dtype=np.float64)
            table["target"] = np.round(np.exp(logs) - 2)
        return table
    content = _fetch.read_converted(
        f"meps_{year}_{release}.csv.gz",
        f"{release}ssp.zip",
        _URL.format(release=release),
        lambda content, where: _convert(content, where, year),
        instead=() if count else file.copies,
        data_home=data_home,
        cache=cache,
    )
    table = _fetch.parse_csv(content)
    table["weight"], counts = table.pop(weight), table.pop("COUNT")
    table["target"] = np.where(counts < 0, np.nan, counts) if count else (counts >= 10).astype(np.float64)
    return table


def _convert(content: bytes, where: PathLike, year: int) -> bytes:
    """Take AIF360's rows and columns out of the official file, as CSV."""
    pd = _frame.library("pandas", "to read the SAS transport file of MEPS")
    release, panel, people = _RELEASES[year]
    transport = _fetch.zip_member(content, lambda name: name.lower() == f"{release}.ssp", where)
    yy = year - 2000
    # Columns of the fifth (or third) interview lose their suffix; diagnoses and scores have none.
    official = {
        **{name: name for name in _COLUMNS},
        **{name: f"{name}53" for name in _LAST_ROUND},
        **{name: f"{name}53X" for name in ("FTSTU", "MARRY", "AGE")},
        **{name: f"{name}{yy}" for name in ("POVCAT", "INSCOV")},
        "sex": "SEX",
        "race": "RACEV2X",
    }
    uses = [f"{name}{yy}" for name in ("OBTOTV", "OPTOTV", "ERTOT", "IPNGTD", "HHTOTD")]
    weight = f"PERWT{yy}F"
    try:
        raw: Any = pd.read_sas(io.BytesIO(transport), format="xport")
        raw = raw[[*official.values(), *uses, weight, "PANEL", "EDUCYR", "HIDEG"]]
    except (ValueError, KeyError, UnicodeDecodeError) as error:
        wrong = f"one that lacks what is needed: {error}"
        expected = f"hold the SAS transport file {release}.ssp of MEPS {year}"
        raise ArgumentError(str(where), expected, wrong, "Download it again.") from error
    known = [c for name, c in official.items() if name not in ("sex", "race", "PCS42", "MCS42", "K6SUM42")]
    required = [official[name] for name in ("REGION", "AGE", "MARRY", "ASTHDX")]
    keep = (raw["PANEL"] == panel) & (raw[required] >= 0).all(axis=1)
    raw = raw[keep & (raw[[*known, "EDUCYR", "HIDEG"]] >= -1).all(axis=1)]
    if len(raw) != people:
        expected = f"give {people:,} people of Panel {panel}"
        raise ArgumentError(str(where), expected, f"{len(raw):,}", f"AHRQ {_fetch.NEW_FILE}")
    table = raw[list(official.values())].set_axis(list(official), axis=1)
    table["sex"], table["race"] = (table["sex"] == 2).astype(int), (table["race"] == 1).astype(int)
    table[weight], table["COUNT"] = raw[weight], raw[uses].sum(axis=1)
    text: str = table.to_csv(index=False, lineterminator="\n")
    return text.encode("ascii")
