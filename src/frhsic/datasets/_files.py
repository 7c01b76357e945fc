"""The files that are recognised by name and checksum, and where their content is published.

``SHA256SUMS`` beside this module, in the format of ``sha256sum``, lists plain files and packed copies (.gz).
"""

from __future__ import annotations

from importlib.resources import files

from frhsic._files import PathLike
from frhsic.datasets._fetch import File, data_folder, find_file

_SUMS = dict(
    line.split()[::-1] for line in files(__package__).joinpath("SHA256SUMS").read_text().splitlines()
)


def _file(name: str, *urls: str) -> File:
    return File({copy: _SUMS[copy] for copy in (name, f"{name}.gz") if copy in _SUMS}, urls)


_UCI = "https://archive.ics.uci.edu"
_UCI_OLD = f"{_UCI}/ml/machine-learning-databases"
_COMPAS = (
    "https://raw.githubusercontent.com/propublica/compas-analysis/bafff5da3f2e45eca6c2d5055faad269defd135a"
)

ADULT_TRAIN = _file("adult.data", f"{_UCI_OLD}/adult/adult.data", f"{_UCI}/static/public/2/adult.zip")
ADULT_TEST = _file("adult.test", f"{_UCI_OLD}/adult/adult.test", f"{_UCI}/static/public/2/adult.zip")
ADULT_NAMES = _file("adult.names")
CRIME = _file(
    "communities.data",
    f"{_UCI_OLD}/communities/communities.data",
    f"{_UCI}/static/public/183/communities+and+crime.zip",
)
CRIME_NAMES = _file("communities.names")
CRIME_ATTRIBUTES = _file("communities_attributes.csv")
COMPAS = _file("compas-scores-two-years.csv", f"{_COMPAS}/compas-scores-two-years.csv")

# The ACS and MEPS extracts below exist in this form only; a download is converted from the official zip file.
ACS_CA = _file("acs_income_2018_ca_40pct.parquet")
ACS_CA_LABELS = _file("acs_income_2018_ca_full_sex_race_label.parquet")
ACS_CO = _file("acs_income_2018_co.csv")
ACS_NE = _file("acs_income_2018_ne.csv")
ACS_US_TEST = _file("acs_income_2018_us_test.parquet")
ACS_US_VALIDATION = _file("acs_income_2018_us_validation.parquet")
ACS_US_SCALE = _file("acs_income_2018_us_scale.parquet")
MEPS_2015 = _file("meps_2015_panel19.csv")
MEPS_2016 = _file("meps_2016_panel21.csv")
MEPS_2016_COUNT = _file("meps_2016_panel21_cifrank.csv")

KNOWN_FILES = tuple(value for value in tuple(globals().values()) if isinstance(value, File))


def check_data_home(data_home: PathLike | None = None) -> dict[str, str]:
    """Return for each file that is recognised by name and checksum "ok", "missing" or what is wrong with it.

    The folder is by default ``FRHSIC_DATA_HOME``, else the user's cache folder.
    """
    states = {}
    for file in KNOWN_FILES:
        try:
            states[file.name] = "missing" if find_file(file, data_folder(data_home)) is None else "ok"
        except ValueError as error:
            states[file.name] = str(error)
    return states
