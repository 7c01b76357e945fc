"""From the official source to the same frame as from the local file, over a real HTTP server.

Only the addresses are changed: to a server on this machine that answers what the official ones would.
"""

import gzip
import importlib
import io
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from frhsic import datasets
from frhsic.datasets import _acs_income, _adult, _compas, _crime, _meps

HTML = b"<html><body>Sorry, this page moved.</body></html>"


def zipped(name, content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.pdf", b"%PDF")
        archive.writestr(name, content)
    return buffer.getvalue()


def same(a, b):
    # equals: assert_frame_equal takes seconds for each categorical column
    assert (a.data.dtypes == b.data.dtypes).all()
    assert a.data.equals(b.data)
    assert a.sensitive_features.equals(b.sensitive_features)
    assert a.target.equals(b.target)


@pytest.mark.parametrize(
    ("module", "constant", "local", "fetch"),
    [
        (_adult, "ADULT_TRAIN", "adult.data.gz", datasets.fetch_adult),
        (_crime, "CRIME", "communities.data.gz", datasets.fetch_crime),
        (_compas, "COMPAS", "compas-scores-two-years.csv.gz", datasets.fetch_compas),
    ],
)
def test_a_download_gives_the_frame_of_the_local_file(
    data_home, server, tmp_path, monkeypatch, module, constant, local, fetch
):
    file = getattr(module, constant)
    content = gzip.decompress((data_home / local).read_bytes())
    url = server.add("/data", content)
    monkeypatch.setattr(module, constant, replace(file, urls=(url,)))
    for _ in range(2):
        same(fetch(data_home=tmp_path), fetch(data_home=data_home))
    assert server.requests["/data"] == 1
    assert (tmp_path / file.name).read_bytes() == content


def test_official_addresses_are_https_and_pinned():
    for file in (_adult.ADULT_TRAIN, _adult.ADULT_TEST, _crime.CRIME, _compas.COMPAS):
        assert file.urls
        assert all(url.startswith("https://") for url in file.urls)
    assert "/bafff5da3f2e45eca6c2d5055faad269defd135a/" in _compas.COMPAS.urls[0]


def census(data_home):
    """A file like the Census Bureau's of Nebraska, with dollars, weights and people the task leaves out."""
    ne = pd.read_csv(data_home / "acs_income_2018_ne.csv.gz")
    ne["PINCP"] = np.where(ne["PINCP"] == 1, 50_001.0, 50_000.0)
    ne["PWGTP"] = np.arange(1, len(ne) + 1)
    out = pd.DataFrame([ne.iloc[0]] * 5, dtype=float)
    out["AGEP"] = [16, 40, 40, 40, 40]
    out["PINCP"] = [30_000, 100, np.nan, 30_000, 30_000]
    out["WKHP"] = [40, 40, 40, np.nan, 40]
    out["PWGTP"] = [1, 1, 1, 1, 0]
    return pd.concat([out.iloc[:3], ne, out.iloc[3:]]).assign(SERIALNO="2018", PUMA=100)


def test_the_census_file_becomes_the_local_frame_with_weights(data_home, server, tmp_path, monkeypatch):
    body = zipped("psam_p31.csv", census(data_home).to_csv(index=False))
    server.add("/2018/csv_pne.zip", body)
    monkeypatch.setattr(_acs_income, "_URL", server.add("/{year}/csv_p{state}.zip", b""))
    official = [datasets.fetch_acs_income(("NE",), data_home=tmp_path) for _ in range(2)]
    local = datasets.fetch_acs_income(("NE",), data_home=data_home)
    assert server.requests["/2018/csv_pne.zip"] == 1
    for bunch in official:
        same(bunch, local)
        np.testing.assert_array_equal(bunch.sample_weight, np.arange(1, 10786))
        assert bunch.sample_fraction == {"NE": 1.0}
    assert local.sample_weight is None
    assert "come without weights" in local.DESCR
    assert "are sample_weight" in official[0].DESCR
    # brought by hand, on a machine without internet
    (tmp_path / "offline").mkdir()
    (tmp_path / "offline" / "acs_2018_csv_pne.zip").write_bytes(body)
    same(datasets.fetch_acs_income("NE", data_home=tmp_path / "offline"), local)
    assert server.requests["/2018/csv_pne.zip"] == 1


def test_a_census_file_of_another_year_needs_no_known_row_count(data_home, server, tmp_path, monkeypatch):
    body = zipped("ss16pne.csv", census(data_home).iloc[:500].to_csv(index=False))
    server.add("/2016/csv_pne.zip", body)
    monkeypatch.setattr(_acs_income, "_URL", server.add("/{year}/csv_p{state}.zip", b""))
    assert datasets.fetch_acs_income(("NE",), 2016, data_home=tmp_path).data.shape == (497, 9)


def test_a_census_file_with_another_row_count_or_without_columns_is_refused(
    data_home, server, tmp_path, monkeypatch
):
    monkeypatch.setattr(_acs_income, "_URL", server.add("/{year}/csv_p{state}.zip", b""))
    good = census(data_home)
    for body, says in (
        (zipped("psam_p31.csv", good.iloc[:-10].to_csv(index=False)), "must give 10,785 rows of NE"),
        (zipped("psam_p31.csv", good.drop(columns="RELP").to_csv(index=False)), "RELP"),
        (HTML, "Got a web page"),
    ):
        server.add("/2018/csv_pne.zip", body)
        with pytest.raises(ValueError, match=says):
            datasets.fetch_acs_income(("NE",), data_home=tmp_path)
        assert list(tmp_path.iterdir()) == []


def test_without_census_file_the_message_names_address_and_file(server, tmp_path, monkeypatch):
    monkeypatch.setattr(_acs_income, "_URL", server.add("/{year}/csv_p{state}.zip", b""))
    with pytest.raises(FileNotFoundError) as caught:
        datasets.fetch_acs_income(("CA",), data_home=tmp_path)
    message = str(caught.value)
    for part in ("/2018/csv_pca.zip", "acs_2018_csv_pca.zip", "acs_income_2018_ca_40pct.parquet", "404"):
        assert part in message


def transport(table):
    """A SAS transport file (version 5) of a numeric table: 80-byte records, big-endian IBM floats."""

    def record(text):
        return text.ljust(80).encode("ascii")

    def header(kind, numbers="0" * 30):
        return record(f"HEADER RECORD*******{kind.ljust(8)}HEADER RECORD!!!!!!!{numbers}")

    def padded(content):
        return content + b" " * (-len(content) % 80)

    stamp = "01JAN18:00:00:00"
    names = b"".join(
        struct.pack(">hhhh8s40s8shhh2s8shhl52s", 1, 0, 8, j + 1, name.ljust(8).encode(), b" " * 40, b" " * 8,
                    0, 0, 0, b"", b" " * 8, 0, 0, 8 * j, b"")
        for j, name in enumerate(table.columns)
    )  # fmt: skip
    x = table.to_numpy(dtype=np.float64)
    mantissa, exponent = np.frexp(np.abs(x))
    sixteens = -(-exponent // 4)
    fraction = np.rint(np.ldexp(mantissa, exponent - 4 * sixteens) * 2.0**56).astype(np.uint64)
    first = (64 + sixteens + 128 * (x < 0)).astype(np.uint64)
    ibm = np.where(x == 0, np.uint64(0), (first << np.uint64(56)) | fraction)
    return b"".join(
        [
            header("LIBRARY"),
            record("SAS     SAS     SASLIB  9.4     Linux".ljust(64) + stamp),
            record(stamp),
            header("MEMBER", "000000000000000001600000000140"),
            header("DSCRPTR"),
            record("SAS     DATA    SASDATA 9.4     Linux".ljust(64) + stamp),
            record(stamp),
            header("NAMESTR", f"000000{table.shape[1]:04d}" + "0" * 20),
            padded(names),
            header("OBS"),
            padded(ibm.astype(">u8").tobytes()),
        ]
    )


def ahrq(data_home):
    """A file like AHRQ's HC-192: official column names, visits, and people the task leaves out."""
    table = pd.read_csv(data_home / "meps_2016_panel21.csv.gz").drop(columns="Probability")
    last = [
        "ACTDTY",
        "HONRDC",
        "RTHLTH",
        "MNHLTH",
        "CHBRON",
        "JTPAIN",
        "PREGNT",
        "WLKLIM",
        "ACTLIM",
        "SOCLIM",
    ]
    names = {name: f"{name}53" for name in [*last, "COGLIM", "EMPST", "REGION"]}
    names |= {name: f"{name}53X" for name in ("FTSTU", "MARRY", "AGE")}
    names |= {"POVCAT": "POVCAT16", "INSCOV": "INSCOV16", "sex": "SEX", "race": "RACEV2X"}
    raw = table.rename(columns=names)
    raw["SEX"] = raw["SEX"] + 1
    raw["RACEV2X"] = np.where(raw["RACEV2X"] == 1, 1, 2)
    logs = pd.read_csv(data_home / "meps_2016_panel21_cifrank.csv.gz")["Y"]
    count = np.round(np.exp(logs) - 2)
    raw["OBTOTV16"] = np.where(count.isna(), -5, count)  # not ascertained
    for name in ("OPTOTV16", "ERTOT16", "IPNGTD16", "HHTOTD16"):
        raw[name] = 0
    raw["OPTOTV16"] = np.minimum(raw["OBTOTV16"], 3).clip(lower=0)  # a sum, not the first column
    raw["OBTOTV16"] = raw["OBTOTV16"] - raw["OPTOTV16"]
    raw = raw.assign(PANEL=21, EDUCYR=12, HIDEG=3)
    out = pd.concat([raw.iloc[:5]] * 2, ignore_index=True)
    out.loc[0, "PANEL"] = 20
    for row, (name, code) in enumerate(
        [("REGION53", -1), ("AGE53X", -1), ("MARRY53X", -7), ("ASTHDX", -9), ("HIDEG", -8), ("PHQ242", -9)], 1
    ):
        out.loc[row, name] = code
    return pd.concat([out.iloc[:4], raw, out.iloc[4:7]], ignore_index=True)


@pytest.fixture
def meps_server(server, monkeypatch):
    monkeypatch.setattr(_meps, "_URL", server.add("/{release}ssp.zip", b""))
    return server


def test_the_sas_file_becomes_the_local_frame(data_home, meps_server, tmp_path):
    meps_server.add("/h192ssp.zip", zipped("h192.ssp", transport(ahrq(data_home))))
    for target in ("ten_or_more", "count"):
        official = datasets.fetch_meps(2016, target=target, data_home=tmp_path)
        local = datasets.fetch_meps(2016, target=target, data_home=data_home)
        same(official, local)
        pd.testing.assert_series_equal(official.sample_weight, local.sample_weight)
    assert meps_server.requests["/h192ssp.zip"] == 1


def test_a_sas_file_that_is_not_the_expected_one_is_refused(data_home, meps_server, tmp_path):
    raw = ahrq(data_home)
    for content, says in (
        (transport(raw.iloc[:100]), "must give 15,675 people of Panel 21"),
        (transport(raw.iloc[:100].drop(columns="PHQ242")), "PHQ242"),
        (HTML * 20, "must hold the SAS transport file"),
    ):
        meps_server.add("/h192ssp.zip", zipped("h192.ssp", content))
        with pytest.raises(ValueError, match=says):
            datasets.fetch_meps(2016, data_home=tmp_path)
    meps_server.add("/h192ssp.zip", HTML)
    with pytest.raises(ValueError, match="Got a web page"):
        datasets.fetch_meps(2016, data_home=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_count_of_2015_is_asked_from_the_official_file(data_home, meps_server):
    with pytest.raises(FileNotFoundError) as caught:
        datasets.fetch_meps(2015, target="count", data_home=data_home)
    assert "h181ssp.zip" in str(caught.value)
    assert "meps_2015_panel19" not in str(caught.value)
    assert meps_server.requests["/h181ssp.zip"] == 1


@pytest.fixture
def no_frames(monkeypatch):
    """A machine without pandas, polars and pyarrow, as far as this package can see."""
    real = importlib.import_module

    def without(name, *args):
        if name.split(".")[0] in ("pandas", "polars", "pyarrow"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", without)


@pytest.mark.usefixtures("no_frames")
def test_the_message_without_pandas_says_how_to_get_it(tmp_path):
    with pytest.raises(ImportError, match="Run: pip install pandas"):
        datasets.fetch_adult(data_home=tmp_path)
    with pytest.raises(ImportError, match="Run: pip install polars"):
        datasets.fetch_adult(as_frame="polars", data_home=tmp_path)


@pytest.mark.usefixtures("no_frames")
def test_arrays_need_no_frame_library(data_home):
    assert datasets.fetch_adult(as_frame=False).data.shape == (30162, 13)
    assert datasets.fetch_meps(as_frame=False).data.shape == (15830, 40)
    with pytest.raises(ImportError, match="Run: pip install pyarrow"):
        datasets.fetch_acs_income(as_frame=False)
