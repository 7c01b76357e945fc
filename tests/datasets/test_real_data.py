"""The real files: what the data folder's README says of them holds for what is loaded."""

import csv
import gzip
import shutil
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.metrics import accuracy_score, r2_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from frhsic import datasets
from frhsic.datasets import _crime, _files

FETCHERS = [
    datasets.fetch_adult,
    datasets.fetch_acs_income,
    datasets.fetch_meps,
    datasets.fetch_crime,
    datasets.fetch_compas,
]

# call, rows, columns, mean of the target in per cent, least and largest S: from the README.
README = {
    "adult.data, all rows": (lambda: datasets.fetch_adult(missing="category"), 32561, 13, 24.08, 17, 90),
    "adult.data, complete rows": (lambda: datasets.fetch_adult(), 30162, 13, 24.89, 17, 90),
    "adult.test, all rows": (
        lambda: datasets.fetch_adult(subset="test", missing="category"), 16281, 13, 23.62, 17, 90,
    ),
    "adult.test, complete rows": (lambda: datasets.fetch_adult(subset="test"), 15060, 13, 24.57, 17, 90),
    "compas, all rows": (lambda: datasets.fetch_compas(rows="all"), 7214, 9, 45.07, 18, 96),
    "compas, filtered": (lambda: datasets.fetch_compas(), 6172, 9, 45.51, 18, 96),
    "communities.data": (lambda: datasets.fetch_crime(), 1994, 99, 23.80, 0, 1),
    "acs ca": (lambda: datasets.fetch_acs_income(), 78266, 9, 41.04, 17, 94),
    "acs co": (lambda: datasets.fetch_acs_income(("CO",)), 31306, 9, 41.44, 17, 93),
    "acs ne": (lambda: datasets.fetch_acs_income("NE"), 10785, 9, 31.23, 17, 95),
    "acs us": (lambda: datasets.fetch_acs_income("US"), 665800, 9, 36.88, 17, 96),
    "acs scale": (lambda: datasets.fetch_acs_income("US", coarse=True), 1507193, 9, 36.66, 17, 96),
    "meps 2015": (lambda: datasets.fetch_meps(), 15830, 40, 17.17, 0, 85),
    "meps 2016": (lambda: datasets.fetch_meps(2016), 15675, 40, 16.77, 0, 85),
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("data_home")


def numbers(frame):
    return np.asarray(frame, dtype=float)


@pytest.mark.parametrize("case", README)
def test_rows_label_means_and_ranges_are_those_of_the_readme(case):
    call, rows, columns, percent, low, high = README[case]
    bunch = call()
    assert bunch.data.shape == (rows, columns)
    assert len(bunch.target) == len(bunch.sensitive_features) == rows
    assert round(100 * bunch.target.mean(), 2) == pytest.approx(percent, abs=0.0051)
    assert bunch.sensitive_features.shape[1] == 1
    s = numbers(bunch.sensitive_features)
    assert (s.min(), s.max()) == (low, high)
    assert bunch.feature_names == list(bunch.data.columns)


def test_every_file_of_the_folder_is_recognised(data_home):
    assert set(datasets.check_data_home().values()) == {"ok"}
    known = {name for file in _files.KNOWN_FILES for name in file.copies}
    assert {path.name for path in data_home.iterdir()} - known == {"README.md"}


def test_a_changed_byte_in_any_file_is_refused(data_home, tmp_path):
    for file in _files.KNOWN_FILES:
        name = next(name for name in file.copies if (data_home / name).is_file())
        content = bytearray((data_home / name).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / name).write_bytes(bytes(content))
    states = datasets.check_data_home(tmp_path)
    assert len(states) == 17
    assert all("must have the sha256" in state for state in states.values())
    for fetch in FETCHERS:
        with pytest.raises(ValueError, match="must have the sha256"):
            fetch(data_home=tmp_path)


def test_two_halves_of_the_nation_have_the_means_of_the_readme(data_home):
    for name, percent in (("test", 36.91), ("validation", 36.84)):
        half = pd.read_parquet(data_home / f"acs_income_2018_us_{name}.parquet")
        assert len(half) == 332900
        assert round(100 * half["PINCP"].mean(), 2) == percent


def test_the_california_sample_agrees_with_the_complete_labels(data_home):
    full = pd.read_parquet(data_home / "acs_income_2018_ca_full_sex_race_label.parquet")
    rows = pd.read_parquet(data_home / "acs_income_2018_ca_40pct.parquet")["ROW"]
    ca = datasets.fetch_acs_income(as_frame=False)
    assert len(full) == 195665
    assert round(100 * full["PINCP"].mean(), 2) == 41.06
    sex, race = (ca.data[:, ca.feature_names.index(name)] for name in ("SEX", "RAC1P"))
    seen = np.column_stack([sex, race, ca.target])
    np.testing.assert_array_equal(seen, full.loc[rows, ["SEX", "RAC1P", "PINCP"]])


def test_states_cut_from_the_nation_are_rows_of_the_state_files(data_home):
    # Colorado and California exist twice: on their own and, as 40 %, in the national files.
    nation = datasets.fetch_acs_income("US")
    names = nation.feature_names
    for state, rows in (("CO", 12522), ("CA", 78266)):
        own = datasets.fetch_acs_income((state,))
        inside = (nation.state == state).to_numpy()
        assert inside.sum() == rows
        cut = nation.data[inside].astype(int).assign(age=nation.sensitive_features["AGEP"])
        known = own.data.astype(int).assign(age=own.sensitive_features["AGEP"])
        assert len(cut.drop_duplicates().merge(known.drop_duplicates(), on=[*names, "age"])) == len(
            cut.drop_duplicates()
        )


def test_samples_say_that_they_are_samples():
    both = datasets.fetch_acs_income(("TX", "CO", "CA"))
    assert both.sample_fraction == {"TX": 0.4, "CO": 1.0, "CA": 0.4}
    assert "The rows of TX, CA are" in both.DESCR
    assert list(pd.unique(both.state)) == ["TX", "CO", "CA"]
    assert (
        "sample" not in datasets.fetch_acs_income(("CO",)).DESCR.split("What was done")[1].split("Known")[0]
    )
    scale = datasets.fetch_acs_income(("FL", "TX"), coarse=True)
    assert scale.sample_fraction == {"FL": 0.5981, "TX": 1.0}
    assert set(scale.data["RAC1P"].cat.categories) == set("12345")


def test_the_subsample_is_the_one_the_scripts_would_draw():
    every = datasets.fetch_acs_income(("NE",), as_frame=False)
    some = datasets.fetch_acs_income(("NE",), as_frame=False, subsample=2000)
    rows = np.random.RandomState(42).choice(10785, 2000, replace=False)
    np.testing.assert_array_equal(some.data, every.data[rows])
    np.testing.assert_array_equal(some.target, every.target[rows])
    other = datasets.fetch_acs_income(("NE",), as_frame=False, subsample=2000, random_state=0)
    assert not np.array_equal(some.data, other.data)
    with pytest.raises(ValueError, match="'subsample' must be from 1 to 10,785"):
        datasets.fetch_acs_income(("NE",), subsample=20_000)


def test_counts_of_2016_agree_with_the_label():
    label, count = datasets.fetch_meps(2016), datasets.fetch_meps(2016, target="count")
    assert len(label.target) - len(count.target) == 5
    assert count.task == "regression"
    assert (count.target >= 10).sum() == label.target.sum()
    assert (count.target.min(), count.target.max()) == (0, 532)


def test_paper_features_of_meps_are_adults_without_negative_codes():
    meps = datasets.fetch_meps(features="paper", missing="drop")
    assert meps.data.shape == (11356, 16)
    assert numbers(meps.data).min() == 0
    assert meps.sensitive_features["AGE"].min() == 18


def test_missing_scores_of_meps_become_nan_on_request():
    code, nan = datasets.fetch_meps(), datasets.fetch_meps(missing="nan")
    for name in ("PCS42", "MCS42", "K6SUM42"):
        np.testing.assert_array_equal(nan.data[name].isna(), code.data[name] < 0)
        assert nan.data[name].isna().mean() > 0.3


def test_crime_reproduces_text_and_scripts(data_home):
    text, scripts = datasets.fetch_crime(), datasets.fetch_crime(sensitive="householdsize")
    with gzip.open(data_home / "communities.data.gz", "rt") as lines:
        raw = pd.read_csv(lines, header=None, na_values="?")
    np.testing.assert_array_equal(text.sensitive_features["racepctblack"], raw[7])
    np.testing.assert_array_equal(scripts.sensitive_features["householdsize"], raw[6])
    assert "racepctblack" in scripts.data
    assert "householdsize" in text.data
    keep = datasets.fetch_crime(missing="keep")
    assert keep.data.shape == (1994, 121)
    assert keep.data.isna().to_numpy().sum() == 22 * 1675 + 1
    assert text.data["OtherPerCap"].isna().sum() == 0


def test_crime_columns_have_the_published_names(data_home):
    with open(data_home / "communities_attributes.csv") as lines:
        attributes = [row[0].strip() for row in csv.reader(lines)][1:]
    with open(data_home / "communities.names") as lines:
        names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    assert attributes == names == _crime._COLUMNS
    assert len(attributes) == 128


def test_adult_columns_are_those_of_the_names_file(data_home):
    with open(data_home / "adult.names") as lines:
        named = [line.split(":")[0] for line in lines if ":" in line and not line.startswith("|")]
    adult = datasets.fetch_adult(missing="category")
    assert sorted(named) == sorted([*adult.feature_names, "age"])


def test_adult_weight_is_a_feature_and_the_sample_weight():
    adult = datasets.fetch_adult()
    np.testing.assert_array_equal(adult.sample_weight, adult.data["fnlwgt"])
    assert "?" not in set(adult.data["workclass"])
    assert "?" in set(datasets.fetch_adult(missing="category").data["workclass"])


def test_compas_holds_nothing_that_identifies(data_home):
    with gzip.open(data_home / "compas-scores-two-years.csv.gz", "rt") as lines:
        header, *rows = csv.reader(lines)
    told = [
        i for i, name in enumerate(header)
        if name in ("id", "name", "first", "last", "dob") or "case_number" in name or "date" in name
        or name.endswith(("_in", "_out", "_custody"))
    ]  # fmt: skip
    identifying = {row[i] for row in rows for i in told if not row[i].isdigit()} - {""}
    assert len(identifying) > 40_000
    for rows_kept in ("filtered", "all"):
        bunch = datasets.fetch_compas(rows=rows_kept)
        shown = set()
        for frame in (bunch.data, bunch.sensitive_features, bunch.target.to_frame()):
            assert not {header[i] for i in told} & set(frame.columns)
            shown |= {str(value) for name in frame for value in frame[name].unique()}
        assert not shown & identifying
        assert set(bunch) == {
            "DESCR", "categories", "codes", "data", "decile_score", "feature_names", "sample_weight",
            "sensitive_features", "sensitive_names", "target", "target_name", "task", "weight_name",
        }  # fmt: skip


def test_compas_days_are_missing_only_in_unfiltered_rows():
    missing = datasets.fetch_compas(rows="all").data.isna().sum()
    assert missing[missing > 0].to_dict() == {"days_b_screening_arrest": 307, "c_days_from_compas": 22}
    compas = datasets.fetch_compas()
    assert not compas.data.isna().to_numpy().any()
    assert compas.data["days_b_screening_arrest"].abs().max() == 30
    assert (compas.decile_score.min(), compas.decile_score.max()) == (1, 10)


@pytest.mark.parametrize("fetch", FETCHERS)
def test_pandas_polars_and_arrays_hold_the_same(fetch):
    ours, theirs, plain = fetch(), fetch(as_frame="polars"), fetch(as_frame=False)
    assert isinstance(ours.data, pd.DataFrame)
    assert isinstance(theirs.data, pl.DataFrame)
    assert isinstance(theirs.sensitive_features, pl.DataFrame)
    assert isinstance(theirs.target, pl.Series)
    assert type(plain.data) is type(plain.target) is type(plain.sensitive_features) is np.ndarray
    assert plain.data.dtype == np.float64
    for j, name in enumerate(ours.feature_names):
        if name in ours.categories:
            assert isinstance(ours.data[name].dtype, pd.CategoricalDtype)
            assert isinstance(theirs.data[name].dtype, pl.Enum)
            assert list(ours.data[name].cat.categories) == ours.categories[name]
            assert theirs.data[name].to_list() == ours.data[name].tolist()
            assert len(np.unique(plain.data[:, j])) == len(ours.categories[name])
        else:
            assert pd.api.types.is_numeric_dtype(ours.data[name])
            assert theirs.data[name].dtype.is_numeric()
            np.testing.assert_array_equal(theirs.data[name].to_numpy(), ours.data[name])
            np.testing.assert_array_equal(plain.data[:, j], ours.data[name])
    np.testing.assert_array_equal(theirs.target.to_numpy(), ours.target)
    np.testing.assert_array_equal(plain.sensitive_features, ours.sensitive_features)
    for weight in (theirs.sample_weight, plain.sample_weight):
        assert (weight is None) == (ours.sample_weight is None)
        if weight is not None:
            np.testing.assert_array_equal(np.asarray(weight), ours.sample_weight)


@pytest.mark.parametrize("fetch", FETCHERS)
def test_return_X_y_gives_data_and_target(fetch):
    X, y = fetch(return_X_y=True, as_frame=False)
    bunch = fetch(as_frame=False)
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)


@pytest.mark.parametrize("fetch", FETCHERS)
def test_sensitive_columns_are_moved_out_of_the_data(fetch):
    usual = fetch()
    first = usual.feature_names[0]
    (name,) = usual.sensitive_features.columns
    moved = fetch(sensitive=(first, name))
    assert list(moved.sensitive_features.columns) == [first, name]
    assert moved.feature_names == usual.feature_names[1:]
    assert moved.sensitive_features[first].equals(usual.data[first])
    with pytest.raises(ValueError, match="'sensitive' must name"):
        fetch(sensitive="nothing")
    with pytest.raises(ValueError, match="'sensitive' must name"):
        fetch(sensitive=())


def found(x, y, kind):
    """How well a tree finds y from x on rows it has not seen."""
    half = len(y) // 2
    if kind == "classification":
        tree = DecisionTreeClassifier(min_samples_leaf=2, random_state=0).fit(x[:half], y[:half])
        return accuracy_score(y[half:], tree.predict(x[half:]))
    tree = DecisionTreeRegressor(min_samples_leaf=2, random_state=0).fit(x[:half], y[:half])
    return r2_score(y[half:], tree.predict(x[half:]))


@pytest.mark.parametrize("fetch", FETCHERS)
def test_a_tree_finds_neither_the_target_nor_the_sensitive_column_in_the_data(fetch):
    bunch = fetch(as_frame=False)
    rows = np.random.default_rng(0).permutation(len(bunch.target))[:4000]
    x, y, s = np.nan_to_num(bunch.data[rows]), bunch.target[rows], bunch.sensitive_features[rows, 0]
    assert found(x, y, bunch.task) < 0.95
    assert found(x, s, "regression") < 0.95
    # The finder does find what is there: put each back and it is found.
    assert found(np.column_stack([x, y]), y, bunch.task) > 0.99
    assert found(np.column_stack([x, s]), s, "regression") > 0.99


@pytest.mark.parametrize("fetch", FETCHERS)
def test_descriptions_name_source_licence_and_problems(fetch):
    text = fetch().DESCR
    for part in ("Source:", "What was done", "Known problems", "https://"):
        assert part in text
    assert "Licence" in text or "Terms" in text
    assert "{" not in text


def test_weights_are_there_where_the_survey_has_them():
    for year, total in ((2015, 8930.34), (2016, 9365.26)):
        meps = datasets.fetch_meps(year)
        assert "PERWT" not in "".join(meps.feature_names)
        assert round(float(meps.sample_weight.mean()), 2) == total
    assert datasets.fetch_compas().sample_weight is None


def test_a_read_only_copy_of_the_data_works(data_home, tmp_path):
    shutil.copy(data_home / "adult.data.gz", tmp_path / "adult.data.gz")
    tmp_path.chmod(0o555)
    before = tmp_path.stat().st_mtime_ns
    try:
        assert datasets.fetch_adult(data_home=tmp_path).data.shape == (30162, 13)
    finally:
        tmp_path.chmod(0o755)
    assert tmp_path.stat().st_mtime_ns == before


def test_every_dataset_of_the_paper_loads_in_seconds():
    start = time.process_time()
    for fetch in FETCHERS:
        fetch()
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: datasets.fetch_adult(subset="both"), "'subset' must be one of"),
        (lambda: datasets.fetch_adult(missing="impute"), "'missing' must be one of"),
        (lambda: datasets.fetch_adult(as_frame="arrow"), "'as_frame' must be"),
        (lambda: datasets.fetch_compas(rows="some"), "'rows' must be one of"),
        (lambda: datasets.fetch_crime(missing="drop"), "'missing' must be one of"),
        (lambda: datasets.fetch_meps(2014), "'year' must be one of"),
        (lambda: datasets.fetch_meps(target="cost"), "'target' must be one of"),
        (lambda: datasets.fetch_meps(features="all"), "'features' must be one of"),
        (lambda: datasets.fetch_meps(missing="mean"), "'missing' must be one of"),
        (lambda: datasets.fetch_acs_income(("XX",)), "'states' must be"),
        (lambda: datasets.fetch_acs_income(("CA", "CA")), "'states' must be"),
        (lambda: datasets.fetch_acs_income(()), "'states' must be"),
        (lambda: datasets.fetch_acs_income(year=2019), "'year' must be from 2014"),
        (lambda: datasets.fetch_acs_income(year=2017, coarse=True), "'year' must be from 2014"),
    ],
)
def test_wrong_arguments_are_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()
