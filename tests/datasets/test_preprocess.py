"""The paper's preprocessing and splits: published dimensions, no look at the test rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import Bunch

from frhsic import datasets


def small(as_frame=True):
    frame = pd.DataFrame(
        {
            "hours": [10.0, 20.0, 30.0, 20.0, 50.0],
            "job": pd.Categorical(["b", "a", "b", "a", "rare"], categories=["a", "b", "rare"]),
            "pay": [1.0, np.nan, 2.0, 6.0, 16.0],
        }
    )
    data = frame if as_frame else frame.assign(job=frame["job"].cat.codes).to_numpy(dtype=float)
    return Bunch(
        data=data,
        feature_names=["hours", "job", "pay"],
        categories={"job": ["a", "b", "rare"]},
        codes=False,
    )


@pytest.mark.parametrize("as_frame", [True, False])
def test_scales_and_medians_come_from_the_training_rows_only(as_frame):
    bunch = small(as_frame)
    train = bunch.data[:4]
    out = datasets.make_preprocessor(bunch).fit(train).transform(bunch.data)
    np.testing.assert_allclose(out[:, 0], [0, 0.5, 1, 0.5, 2])  # 50 hours are beyond the training range
    np.testing.assert_allclose(out[:, 1], [0, 0.2, 0.2, 1, 3])  # the median of 1, 2, 6 is 2


@pytest.mark.parametrize("as_frame", [True, False])
def test_a_category_that_training_lacks_keeps_its_column(as_frame):
    bunch = small(as_frame)
    out = datasets.make_preprocessor(bunch).fit(bunch.data[:4]).transform(bunch.data)
    np.testing.assert_array_equal(out[:, 2:], [[0, 1, 0], [1, 0, 0]] * 2 + [[0, 0, 1]])


def test_the_preprocessor_is_a_scikit_learn_transformer():
    bunch = small()
    fitted = datasets.make_preprocessor(bunch).fit(bunch.data)
    assert list(fitted.get_feature_names_out()) == ["hours", "pay", "job_a", "job_b", "job_rare"]
    again = pickle.loads(pickle.dumps(fitted)).transform(bunch.data)
    np.testing.assert_array_equal(again, clone(fitted).fit_transform(bunch.data))


def test_codes_need_numeric_categories():
    with pytest.raises(ValueError, match="'categories' must be 'onehot'"):
        datasets.make_preprocessor(small(), categories="codes")
    with pytest.raises(ValueError, match="'categories' must be one of"):
        datasets.make_preprocessor(small(), categories="dummy")


@pytest.mark.parametrize("repeat", range(5))
def test_splits_are_the_published_ones(repeat):
    train, test = datasets.paper_split(1994, repeat=repeat)
    order = np.random.RandomState(42 + repeat).permutation(1994)
    np.testing.assert_array_equal(np.concatenate([train, test]), order)
    assert (len(train), len(test)) == (1595, 399)


def test_a_split_needs_rows_and_a_repeat():
    for arguments in ({"n_samples": 1}, {"n_samples": 10, "repeat": -1}):
        with pytest.raises(ValueError, match="'n_samples' must be at least 2 and 'repeat' at least 0"):
            datasets.paper_split(**arguments)


@pytest.mark.parametrize(
    ("call", "options", "dimension"),
    [
        (datasets.fetch_adult, {"missing": "category"}, 107),
        (datasets.fetch_adult, {}, 103),
        (datasets.fetch_acs_income, {}, 9),
        (datasets.fetch_meps, {}, 40),
        (datasets.fetch_crime, {"sensitive": "householdsize"}, 99),
        (datasets.fetch_compas, {}, 16),
        # Names as categories, and codes as numbers, in the other kinds of tables.
        (datasets.fetch_adult, {"missing": "category", "as_frame": "polars"}, 107),
        (datasets.fetch_adult, {"missing": "category", "as_frame": False}, 107),
        (datasets.fetch_acs_income, {"as_frame": "polars"}, 9),
        (datasets.fetch_meps, {"as_frame": False}, 40),
    ],
)
def test_dimensions_are_those_published(data_home, call, options, dimension):
    bunch = call(**options)
    out = datasets.make_preprocessor(bunch).fit_transform(bunch.data)
    assert out.shape == (len(bunch.target), dimension)
    assert (out.min(), out.max()) == (0, 1)


def test_the_output_is_that_of_the_published_recipe(data_home):
    # get_dummies on all rows, numbers first, then min-max on the training rows.
    adult = datasets.fetch_adult(missing="category")
    train, _ = datasets.paper_split(len(adult.target), repeat=1)
    numeric = [name for name in adult.feature_names if name not in adult.categories]
    dummies = pd.get_dummies(adult.data[list(adult.categories)]).to_numpy()
    raw = np.hstack([adult.data[numeric].to_numpy(), dummies]).astype(np.float64)
    theirs = MinMaxScaler().fit(raw[train]).transform(raw)
    ours = datasets.make_preprocessor(adult).fit(adult.data.iloc[train]).transform(adult.data)
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_one_hot_of_survey_codes_is_the_same_from_frames_and_arrays(data_home):
    outs = []
    for as_frame in (True, "polars", False):
        ne = datasets.fetch_acs_income(("NE",), as_frame=as_frame, subsample=500)
        outs.append(datasets.make_preprocessor(ne, categories="onehot").fit_transform(ne.data))
    assert outs[0].shape[1] > 200
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])
