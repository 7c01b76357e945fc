"""ACS Income: who earned more than 50,000 dollars in the United States of 2018."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from frhsic._checks import ArgumentError
from frhsic._files import PathLike
from frhsic.datasets import _fetch, _files, _frame

_FEATURES = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P")
_NUMBERS = ("AGEP", "SCHL", "WKHP")

# Rows of each state in folktables' ACSIncome table of 2018, in its order; they add up to 1,664,500. Good to a
# few rows, but for those in _CERTAIN.
_ROWS_2018 = {
    "AL": 22268, "AK": 3546, "AZ": 33277, "AR": 13929, "CA": 195665, "CO": 31306, "CT": 19785, "DE": 4713,
    "FL": 98925, "GA": 50915, "HI": 7731, "ID": 8265, "IL": 67016, "IN": 35022, "IA": 17745, "KS": 15807,
    "KY": 22006, "LA": 20663, "ME": 7003, "MD": 33044, "MA": 40114, "MI": 50008, "MN": 31019, "MS": 13191,
    "MO": 31664, "MT": 5464, "NE": 10785, "NV": 14807, "NH": 7966, "NJ": 47781, "NM": 8711, "NY": 103021,
    "NC": 52067, "ND": 4455, "OH": 62134, "OK": 17917, "OR": 21919, "PA": 68309, "RI": 5712, "SC": 24879,
    "SD": 4899, "TN": 34003, "TX": 135924, "UT": 16337, "VT": 3767, "VA": 46144, "WA": 39944, "WV": 8100,
    "WI": 32690, "WY": 3067, "PR": 9071,
}  # fmt: skip
_CERTAIN = ("CA", "CO", "NE")
_EXTRACTS = {"CA": _files.ACS_CA, "CO": _files.ACS_CO, "NE": _files.ACS_NE}  # of 2018
_URL = "https://www2.census.gov/programs-surveys/acs/data/pums/{year}/1-Year/csv_p{state}.zip"
_COMPLETE = "folktables' filter; codes as in the survey; all rows of the official file of each state."
_SAMPLE = (
    "folktables' filter; codes as in the survey (RAC1P of the national files put back to 1 to 9). The rows "
    "of {states} are a random 40 % sample, drawn within states from the national table; see sample_fraction."
)
_BORDERS = (
    " The state of such a row is inferred from its place in that table, good to a few rows at each border."
)
_COARSE = (
    "folktables' filter, then a coarser coding: MAR is 1 married, 2 not; RAC1P is 1 White, 2 Black, 3 Asian, "
    "4 American Indian or Alaska Native, 5 other. 1,507,193 of the 1,664,500 national rows, in random order: "
    "nearly all of 49 states, but 59,165 of 98,925 in FL and 78,266 of 195,665 in CA; ten states lack up to "
    "50 rows of one race group."
)


def fetch_acs_income(
    states: str | Sequence[str] = ("CA",),
    year: int = 2018,
    *,
    coarse: bool = False,
    subsample: int | None = None,
    random_state: int = 42,
    sensitive: str | Sequence[str] = "AGEP",
    data_home: PathLike | None = None,
    cache: bool = True,
    as_frame: _frame.AsFrame = True,
    return_X_y: bool = False,
) -> Bunch:
    """Load ACS Income: people of some states, income above 50,000 dollars, sensitive age.

    A local extract is used where the data folder has one: a 40 % sample of California (78,266 rows), all of
    Colorado and Nebraska, and, for any other state of 2018, a 40 % sample of the nation (665,800 rows).
    Otherwise the official file of each state is downloaded. Its checksum is not known here; it is checked by
    its structure: a zip file with one CSV file that has the columns and, where it is known, the number of
    rows.

    Parameters
    ----------
    states : str or sequence of str, default=("CA",)
        Postal codes of states or "PR", or "US" for all.
    year : int, default=2018
        From 2014 to 2018; other years than 2018 are downloads.
    coarse : bool, default=False
        Take the rows from the large file for tests of scale, 1.5 million rows with coarser race and marital
        status.
    subsample : int or None, default=None
        Draw so many rows without replacement; the paper has 20,000.
    random_state : int, default=42
        Seed of that draw; the published scripts use 42, on the complete rows of California.
    sensitive, data_home, cache, as_frame, return_X_y
        As in :func:`fetch_adult`; ``as_frame=False`` gives the survey's codes.

    Returns
    -------
    Bunch or tuple
        As of :func:`fetch_adult`. ``sample_weight`` is PWGTP for downloads and None for local extracts,
        which lack it. Besides: ``state`` of each row, and ``sample_fraction``, by state the share of its
        rows that is here (before ``subsample``).

    Examples
    --------
    >>> acs = fetch_acs_income(("CA",))
    >>> acs.data.shape, acs.sample_fraction
    ((78266, 9), {'CA': 0.4})
    """
    wanted = _check_states(states)
    if year not in range(2014, 2019) or (coarse and year != 2018):
        must = "be from 2014 to 2018, and 2018 if 'coarse' is set"
        why = "From 2019 on the survey asks for relationships in another way (RELSHIPP)"
        raise ArgumentError("year", must, repr(year), f"{why}, which makes another task.")
    _frame.check_as_frame(as_frame)
    if coarse:
        table = _parquet(_fetch.read_file(_files.ACS_US_SCALE, data_home=data_home, cache=cache))
        table = _take(table, np.isin(table["STATE"], wanted))
        sampled, done = wanted, _COARSE
    else:
        table, sampled = _load(wanted, year, states == "US", data_home, cache)
        done = _SAMPLE.format(states=", ".join(sampled)) if sampled else _COMPLETE
        done += _BORDERS if set(sampled) - {"CA"} else ""
    counts = dict(zip(*np.unique(table["STATE"], return_counts=True), strict=True))
    fractions = {
        state: round(float(counts[state] / _ROWS_2018[state]), 4) if state in sampled else 1.0
        for state in wanted
    }
    if subsample is not None:
        n = len(table["AGEP"])
        if not 0 < subsample <= n:
            must = f"be from 1 to {n:,}, the number of rows"
            raise ArgumentError("subsample", must, repr(subsample), "Use None for all rows.")
        table = _take(table, np.random.RandomState(random_state).choice(n, subsample, replace=False))
    weight = ("PWGTP", table["PWGTP"]) if "PWGTP" in table else None
    bunch = _frame.make_bunch(
        {name: table[name] for name in _FEATURES},
        ("income_above_50k", table["PINCP"].astype(np.int64)),
        sensitive=sensitive,
        categorical=[name for name in _FEATURES if name not in _NUMBERS],
        weight=weight,
        as_frame=as_frame,
        task="classification",
        codes=True,
        description=_frame.read_description("acs_income").format(
            done=done,
            weights="Here they are sample_weight." if weight else "These rows come without weights.",
        ),
    )
    bunch.state = _frame.pack_series("STATE", table["STATE"], as_frame)
    bunch.sample_fraction = fractions
    return (bunch.data, bunch.target) if return_X_y else bunch


def _take(table: dict[str, _frame.Values], rows: Any) -> dict[str, _frame.Values]:
    return {name: values[rows] for name, values in table.items()}


def _check_states(states: str | Sequence[str]) -> list[str]:
    if states == "US":
        return list(_ROWS_2018)
    wanted = [states] if isinstance(states, str) else list(states)
    if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= set(_ROWS_2018):
        must = "be different postal codes such as ('CA', 'NY'), or 'US' for all"
        raise ArgumentError("states", must, repr(states), f"Choose from {', '.join(_ROWS_2018)}.")
    return wanted


def _load(
    wanted: list[str], year: int, nation: bool, data_home: PathLike | None, cache: bool
) -> tuple[dict[str, _frame.Values], list[str]]:
    """Load the rows of the states, in their order; return also the states of which they are samples."""
    folder = _fetch.data_folder(data_home)
    parts: dict[str, dict[str, _frame.Values]] = {}
    extracts = _EXTRACTS if year == 2018 and not nation else {}
    for state in wanted:
        # A file made of an official download is the most complete one, with weights; then the local extracts.
        content = _fetch.find_file(extracts[state], folder) if state in extracts else None
        if (folder / _extract_name(state, year)).is_file():
            parts[state] = _download(state, year, data_home, cache)
        elif content is not None:
            parts[state] = _parquet(content) if state == "CA" else _fetch.parse_csv(content, np.int64)
    sampled = ["CA"] if "CA" in parts and "ROW" in parts["CA"] else []
    left = [state for state in wanted if state not in parts]
    files = (_files.ACS_US_TEST, _files.ACS_US_VALIDATION) if left and year == 2018 else ()
    halves = [half for half in (_fetch.find_file(file, folder) for file in files) if half is not None]
    if len(halves) == 2:
        national = _national(halves)
        # Rows are in the order of the states: each state is a slice.
        ends = np.searchsorted(national["index"], np.cumsum(list(_ROWS_2018.values())))
        starts = np.concatenate([[0], ends[:-1]])
        places = {state: slice(*place) for state, *place in zip(_ROWS_2018, starts, ends, strict=True)}
        parts |= {state: _take(national, places[state]) for state in left}
        sampled += left
    else:
        parts |= {state: _download(state, year, data_home, cache) for state in left}
    shared = set.intersection(*(set(part) for part in parts.values()))
    table = {name: np.concatenate([parts[state][name] for state in wanted]) for name in shared}
    table["STATE"] = np.repeat(wanted, [len(parts[state]["AGEP"]) for state in wanted])
    return table, [state for state in wanted if state in sampled]


def _national(halves: list[bytes]) -> dict[str, _frame.Values]:
    tables = [_parquet(half) for half in halves]
    joined = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    joined["RAC1P"] = joined["RAC1P"] + 1  # these files count race from 0
    return _take(joined, np.argsort(joined["index"]))


def _parquet(content: bytes) -> dict[str, _frame.Values]:
    parquet = _frame.library("pyarrow.parquet", "to read parquet files of ACS Income")
    table = parquet.read_table(io.BytesIO(content), page_checksum_verification=True)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    return {name: column.astype("U2" if name == "STATE" else np.int64) for name, column in columns.items()}


def _extract_name(state: str, year: int) -> str:
    return f"acs_income_{year}_{state.lower()}_pums.csv.gz"


def _download(state: str, year: int, data_home: PathLike | None, cache: bool) -> dict[str, _frame.Values]:
    content = _fetch.read_converted(
        _extract_name(state, year),
        f"acs_{year}_csv_p{state.lower()}.zip",
        _URL.format(year=year, state=state.lower()),
        lambda content, where: _convert(content, where, state, year),
        instead=_EXTRACTS[state].copies if year == 2018 and state in _EXTRACTS else (),
        data_home=data_home,
        cache=cache,
    )
    return _fetch.parse_csv(content, np.int64)


def _convert(content: bytes, where: PathLike, state: str, year: int) -> bytes:
    """Take folktables' rows and columns, and the weight, out of the official file, as CSV."""
    pd = _frame.library("pandas", "to read the official file of ACS")
    text = _fetch.zip_member(content, lambda name: name.endswith(".csv") and name[:2] in ("ps", "ss"), where)
    try:
        raw: Any = pd.read_csv(io.BytesIO(text), usecols=[*_FEATURES, "PINCP", "PWGTP"])
    except ValueError as error:
        must, got = f"hold the persons of {state} in {year}", f"a file that lacks what is needed: {error}"
        raise ArgumentError(str(where), must, got, "Download it again.") from error
    raw = raw[(raw["AGEP"] > 16) & (raw["PINCP"] > 100) & (raw["WKHP"] > 0) & (raw["PWGTP"] >= 1)].fillna(0)
    raw["PINCP"] = raw["PINCP"] > 50_000
    expected, tolerance = _ROWS_2018[state], 0 if state in _CERTAIN else 20
    if year == 2018 and abs(len(raw) - expected) > tolerance:
        must, got = f"give {expected:,} rows of {state}", f"{len(raw):,}"
        raise ArgumentError(str(where), must, got, f"The Census Bureau {_fetch.NEW_FILE}")
    written: str = raw[[*_FEATURES, "PINCP", "PWGTP"]].astype(int).to_csv(index=False, lineterminator="\n")
    return written.encode("ascii")
