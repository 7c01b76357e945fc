"""The files that are recognised by name and checksum, and where their content is published."""

from __future__ import annotations

from frhsic._files import PathLike
from frhsic.datasets._fetch import File, data_folder, find

_UCI = "https://archive.ics.uci.edu"

ADULT_TRAIN = File(
    {
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.data.gz": "c7a2b4716a97f930123e0baf879188d701e798172631a654fc703d4b082907f3",
    },
    (f"{_UCI}/ml/machine-learning-databases/adult/adult.data", f"{_UCI}/static/public/2/adult.zip"),
)
ADULT_TEST = File(
    {
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        "adult.test.gz": "8a2c1bffa6e7ce5abfa43881ae5e87c4311ebc2b3cd526c9c40a43f19f06f799",
    },
    (f"{_UCI}/ml/machine-learning-databases/adult/adult.test", f"{_UCI}/static/public/2/adult.zip"),
)
ADULT_NAMES = File({"adult.names": "c248284c0b5de30c9e1958d6cdd168a34a654758b620e68f46aefa83fc0a576a"})

CRIME = File(
    {
        "communities.data": "09e0b5c07eae24c1efab19b2edee05e160e7f5743b6f31e31eec3d73624da2ea",
        "communities.data.gz": "56018c09158ea0af5a9d6bf4f645a3c7a39e8efc75b881c6183f942b2f26fdbf",
    },
    (
        f"{_UCI}/ml/machine-learning-databases/communities/communities.data",
        f"{_UCI}/static/public/183/communities+and+crime.zip",
    ),
)
CRIME_NAMES = File({"communities.names": "80914f24ab37261fb0fbda7e417cad8001335dadda4a8d702c265601ef8434fc"})
CRIME_ATTRIBUTES = File(
    {"communities_attributes.csv": "7910375e27b6544045bd620efe7724afd9c90f53e711c78df7c16c3adfddcc9b"}
)

COMPAS = File(
    {
        "compas-scores-two-years.csv": "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
        "compas-scores-two-years.csv.gz": "706137877c1ffafbb8580f2523644bbe34e639dad00922abc6079f8f31d75514",
    },
    (
        "https://raw.githubusercontent.com/propublica/compas-analysis/"
        "bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
    ),
)

# The ACS and MEPS extracts below exist in this form only; a download is converted from the official zip file.
ACS_CA = File(
    {"acs_income_2018_ca_40pct.parquet": "d6a33bb2badfe6a30eece2746ea3d56afa48c7400945556f804ae876c1a0eae3"}
)
ACS_CA_LABELS = File(
    {
        "acs_income_2018_ca_full_sex_race_label.parquet": (
            "172d000c9032c8fe91e67ef02ca2d9b6686fe4cb3cd7ee8eae5e801e1c07ff56"
        )
    }
)
ACS_CO = File(
    {
        "acs_income_2018_co.csv": "d9a213e009689a170e972c9e123dfedf6ae01952b9a92ac556b367a5e1e42150",
        "acs_income_2018_co.csv.gz": "7f69843e5a02d9b8eb38e7e4cdbd2fbfe7a9a946d328c7755c594e4236fa33fc",
    }
)
ACS_NE = File(
    {
        "acs_income_2018_ne.csv": "f009b46175b2dbdeb16c4a0cde03a71e8377992dc205df3880d14af62a754e0a",
        "acs_income_2018_ne.csv.gz": "8f7fa8f42b8fe0d129489ae1c1d1e2e78c3e585d685e5ebf93554631d988f864",
    }
)
ACS_US_TEST = File(
    {"acs_income_2018_us_test.parquet": "050a84d27232b70c14992ce996c9cd04fa1c6eccc8e1394760b6de3e01de9fc5"}
)
ACS_US_VALIDATION = File(
    {
        "acs_income_2018_us_validation.parquet": (
            "cbe16ab9be0996473f132d3a7fafe456e7db6cb3b63c4d1fcc74e3e92b0bcef2"
        )
    }
)
ACS_US_SCALE = File(
    {"acs_income_2018_us_scale.parquet": "aabff19b921507e722db9a366b639b476368de8863954de3afba4a9a33fd4dcf"}
)

MEPS_2015 = File(
    {
        "meps_2015_panel19.csv": "df163dc540f273ff8fea1e4003ace49e31c4554ab3fc861e98e6cfd4df0e16e2",
        "meps_2015_panel19.csv.gz": "827d1a8f45f448c8b066aef81994d5f62c96e544b849abd9c993045ffcd29528",
    }
)
MEPS_2016 = File(
    {
        "meps_2016_panel21.csv": "f1fd0b919eb4fe94eb72a3a48a1f48a310e0efe6b25b4feb4fad4c463bb63c5e",
        "meps_2016_panel21.csv.gz": "624e54e4ac4b5e840aa4ef4bce6e0ca414b69d0230229129b2e4b867ee60d11d",
    }
)
MEPS_2016_COUNT = File(
    {
        "meps_2016_panel21_cifrank.csv": "a96d8a616bf89de9bc5f5ea148a3c10545f09b31722bca4e267c63b0206f8951",
        "meps_2016_panel21_cifrank.csv.gz": (
            "91797f8d4e1cfe99241c0a74f50b21ac6d8fe8421246af1e6c1f4cf808e773fe"
        ),
    }
)

ALL = tuple(value for value in tuple(globals().values()) if isinstance(value, File))


def check_data_home(data_home: PathLike | None = None) -> dict[str, str]:
    """Check every file that this package recognises by name and checksum.

    Parameters
    ----------
    data_home : path-like, default=None
        The folder to look in; by default ``FRHSIC_DATA_HOME``, else the user's cache folder.

    Returns
    -------
    dict of str to str
        For each file "ok", "missing" or, for a changed or unreadable copy, the error message.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_data_home(folder)["adult.data"]
    'missing'
    """
    states = {}
    for file in ALL:
        try:
            states[file.name] = "missing" if find(file, data_folder(data_home)) is None else "ok"
        except ValueError as error:
            states[file.name] = str(error)
    return states
