"""What holds for every public function and result of frhsic.inference."""

import dataclasses
import inspect
import json
import math
import re
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
import threadpoolctl
import torch

from frhsic import inference
from frhsic._checks import ArgumentError
from frhsic.data import to_sensitive
from frhsic.dependence import (
    EIPM,
    GDP,
    HSIC,
    Adversary,
    BinnedMMD,
    DistanceCovariance,
    KernelHGR,
    MutualInformation,
)
from frhsic.inference import (
    EquivalenceResult,
    Interval,
    TestResult,
    bounds,
    holm,
    independence_test,
)
from frhsic.inference._strata import some_rows
from frhsic.kernels import Gaussian

FIXED = HSIC(Gaussian(1.0), Gaussian(1.0))
N = 80

# Functions of (scores, s): what they need besides, and what makes them quick.
OF_DATA = {
    "certify": {"dependence": FIXED, "n_permutations": 19},
    "conditional_curve": {"n_draws": 99},
    "confidence_interval": {"n_draws": 99},
    "decision_gaps": {},
    "equivalence_test": {"tolerance": 0.5, "n_draws": 99},
    "independence_test": {"n_permutations": 19},
    "localized_profile": {"n_permutations": 19},
    "worst_case_head": {"dependence": FIXED},
}
WITHOUT_DRAWS = {"decision_gaps"}
# Functions of numbers, of a region, of more columns (test_factors.py) or of two samples (test_compare.py),
# tested beside their formulas.
OF_NUMBERS = {
    "channel_bound",
    "adjusted_curve",
    "auc_curve",
    "carriers",
    "conditional_independence_test",
    "curve_change",
    "gap_change",
    "linear_complexity",
    "network_complexity",
    "proxies",
    "region_test",
    "sampled_complexity",
    "uniform_bound",
}


def data(n=N, seed=0):
    """One score, whose gap to the curve of s has a spread, and a column of s with a mild effect."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n).round(3)
    return (0.4 * s + rng.normal(size=n)).round(3), s


def function(name):
    return getattr(inference if name in inference.__all__ else bounds, name)


def call(name, z, s, **changes):
    seed = {} if name in WITHOUT_DRAWS else {"random_state": 0}
    return function(name)(z, s, **(seed | OF_DATA[name] | changes))


def as_dict(result):
    """All fields of a result, or of several."""
    return [part.to_dict() for part in result] if isinstance(result, tuple) else result.to_dict()


def test_every_public_function_is_here():
    names = [*inference.__all__, *bounds.__all__]
    assert {name for name in names if inspect.isfunction(function(name))} == set(OF_DATA) | OF_NUMBERS


@pytest.mark.parametrize("name", OF_DATA)
def test_results_are_frozen_print_as_sentences_and_go_into_json_and_frames(name):
    result = call(name, *data())
    for part in result if isinstance(result, tuple) else (result,):
        assert dataclasses.is_dataclass(part)
        for field in dataclasses.fields(part):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, field.name, 0)
        text = str(part)
        assert text.endswith(".")
        assert not re.search(r"\b(fair|unbiased|inf|nan)\b|=0x|tensor", text)
        stored = json.loads(json.dumps(part.to_dict()))
        assert stored == part.to_dict()
        assert set(stored) <= {field.name for field in dataclasses.fields(part)}
        frame = part.to_frame()
        assert isinstance(frame, pd.DataFrame)
        assert len(frame) >= 1


@pytest.mark.parametrize("name", OF_DATA)
def test_lists_tensors_and_frames_give_the_same_result(name):
    z, s = data()
    expected = as_dict(call(name, z, {"age": s}))
    inputs = {
        "list": (z.tolist(), {"age": s.tolist()}),
        "tensor": (torch.tensor(z, requires_grad=True), {"age": torch.tensor(s)}),
        "pandas": (pd.Series(z), pd.DataFrame({"age": s})),
        "pandas series": (pd.DataFrame({"score": z}), pd.Series(s, name="age")),
        "polars": (pl.Series(z), pl.DataFrame({"age": s})),
    }
    for kind, (x, y) in inputs.items():
        assert as_dict(call(name, x, y)) == expected, kind


@pytest.mark.parametrize("name", OF_DATA)
def test_sensitive_columns_are_accepted_as_they_are_and_their_rows_are_counted(name):
    z, s = data()
    assert as_dict(call(name, z, to_sensitive({"age": s}))) == as_dict(call(name, z, {"age": s}))
    with pytest.raises(ValueError, match=rf"^'s' must have {N} rows.* Got {N - 1}\. \w+"):
        call(name, z, to_sensitive(s[:-1]))


@pytest.mark.parametrize("name", sorted(set(OF_DATA) - WITHOUT_DRAWS))
def test_the_same_random_state_gives_the_same_result_and_no_global_seed_is_touched(name):
    z, s = data()
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = as_dict(call(name, z, s))
    torch.manual_seed(5)
    try:
        assert as_dict(call(name, z, s)) == first
    finally:
        torch.random.set_rng_state(before[0])
    call(name, z, s, random_state=None)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    same = [call(name, z, s, random_state=torch.Generator().manual_seed(0)), call(name, z, s, random_state=0)]
    assert as_dict(same[0]) == as_dict(same[1])
    call(name, z, s, random_state=np.random.default_rng(0))
    with pytest.raises(TypeError, match=r"^'random_state' must be"):
        call(name, z, s, random_state="seed")


@pytest.mark.parametrize("name", OF_DATA)
def test_data_are_not_written_to(name):
    z, s = data()
    before = z.copy(), s.copy()
    call(name, z, s)
    assert (z == before[0]).all()
    assert (s == before[1]).all()


# For each argument: a call, and the value that must make a difference to it. Draws come with a seed, so that
# nothing else does.
Y = (np.arange(N) % 3 == 0).astype(int)
W = np.random.default_rng(1).random(N) + 0.1
TESTS = {
    "groups": ({}, np.arange(N) // 2),
    "dependence": ({}, HSIC()),
    "method": ({"dependence": HSIC()}, "gamma"),
    "given": ({}, Y),
    "n_permutations": ({}, 29),
    "random_state": ({}, 1),
    "sample_weight": ({}, W),
    "weights_of_s": ({"sample_weight": W}, True),
    "each": ({}, True),
}
CHANGES = {
    "independence_test": TESTS,
    "conditional_curve": {
        "confidence_level": ({}, 0.8),
        "cutoff": ({}, 0.5),
        "groups": ({}, np.arange(N) // 2),
        "n_draws": ({"groups": np.arange(N) // 2}, 199),
        "random_state": ({"groups": np.arange(N) // 2}, 1),
        "sample_weight": ({}, W),
    },
    "decision_gaps": {
        "cutoffs": ({}, [0.0, 0.5]),
        "confidence_level": ({}, 0.8),
        "groups": ({}, np.arange(N) // 2),
        "sample_weight": ({}, W),
    },
    "confidence_interval": {
        "dependence": ({}, GDP()),
        "confidence_level": ({}, 0.8),
        "n_draws": ({}, 199),
        "random_state": ({}, 1),
        "chance": ({}, False),
        "sample_weight": ({}, W),
        "groups": ({}, np.arange(N) // 2),
    },
    "localized_profile": {
        "confidence_level": ({}, 0.8),
        "groups": ({}, np.arange(N) // 2),
        "n_permutations": ({}, 29),
        "random_state": ({}, 1),
        "sample_weight": ({}, W),
    },
    "equivalence_test": {
        "tolerance": ({}, 0.1),
        "dependence": ({}, HSIC()),
        "alpha": ({}, 0.2),
        "n_draws": ({}, 999),
        "random_state": ({}, 1),
        "groups": ({}, np.arange(N) // 2),
    },
}


@pytest.mark.parametrize(
    ("name", "argument"), [(name, argument) for name, table in CHANGES.items() for argument in table]
)
def test_every_argument_changes_something(name, argument):
    z, s = data()
    base, value = CHANGES[name][argument]
    assert as_dict(call(name, z, s, **(base | {argument: value}))) != as_dict(call(name, z, s, **base))


@pytest.mark.parametrize("name", CHANGES)
def test_no_argument_is_left_without_a_difference(name):
    parameters = inspect.signature(function(name)).parameters
    keyword_only = {key for key, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert keyword_only == set(CHANGES[name])
    assert list(parameters)[:2] == ["scores", "s"]
    assert len(parameters) == len(keyword_only) + 2


@pytest.mark.parametrize("name", OF_DATA)
def test_rows_must_match_be_finite_and_vary(name):
    z, s = data()
    first = next(iter(inspect.signature(function(name)).parameters))
    with pytest.raises(ValueError, match=rf"^'s' must have {N} rows.* Got {N - 1}\. \w+"):
        call(name, z, s[:-1])
    spoilt = z.copy()
    spoilt[3] = math.nan
    with pytest.raises(ValueError, match=rf"^'{first}' must have no missing values.* Got 1.*row 3\. \w+"):
        call(name, spoilt, s)
    with pytest.raises(ValueError, match=r"^'s' must have no missing values.* Got 1.*row 3\. \w+"):
        call(name, z, spoilt)
    with pytest.raises(ValueError, match=r"^'s' must vary.*Got a single value"):
        call(name, z, np.ones(N))
    with pytest.raises(ValueError, match=rf"^'{first}' must have at least \d+ rows.* Got 1\. \w+"):
        call(name, z[:1], s[:1])
    with pytest.raises(ValueError, match=rf"^'{first}' must hold numbers.* Got strings\. \w+"):
        call(name, ["a", "b"] * (N // 2), s)


# Argument, requirement, arrival, cure.
WRONG = {
    "method": ({"method": "exact"}, r"must be 'permutation' or 'gamma'\. Got 'exact'\. Leave it out"),
    "dependence": ({"dependence": "hsic"}, r"must be a measure or None\. Got 'hsic'\. Take one of"),
    "dependence, a class": ({"dependence": HSIC}, r"must be a measure or None\. Got <class.*HSIC'>\. Take"),
    "n_permutations": ({"n_permutations": 18}, r"must be at least 19.* Got 18\. Take 999"),
    "n_permutations, 99.0": ({"n_permutations": 99.0}, r"must be an integer\. Got float\. Take 999"),
    "n_permutations, True": ({"n_permutations": True}, r"must be an integer\. Got bool\. Take 999"),
    "n_permutations, None": ({"n_permutations": None}, r"must be an integer\. Got NoneType\. Take 999"),
    "given": ({"given": Y[:-1]}, r"must have 80 rows like 'scores'\. Got 79\. Pass one label"),
    "given, all apart": (
        {"given": np.arange(N)},
        r"must have a label with at least 8 rows\. Got none\. Merge",
    ),
    "given, two columns": ({"given": np.ones((N, 2))}, r"must be a single column\. Got 2\. Choose"),
    "given, missing": ({"given": [None, *Y[1:]]}, r"must have no missing values\. Got 1 .*row 0\. Drop"),
    "sample_weight": ({"sample_weight": W[:-1]}, r"must have 80 rows like 'scores'\. Got 79\. \w+"),
    "sample_weight, negative": ({"sample_weight": -W}, r"must not be negative\. Got 80 .*\. Set"),
    "sample_weight, zero": ({"sample_weight": 0 * W}, r"must have a positive sum\. Got only zeros\. Give"),
    "sample_weight, few": (
        {"sample_weight": (np.arange(N) < 5) / 1},
        r"must be positive in at least 6 rows\. Got 5\. Pass",
    ),
    "sample_weight, gamma": (
        {"sample_weight": W, "method": "gamma"},
        r"must be None for method='gamma'.* Got weights\. Use method='permutation'",
    ),
    "weights_of_s": (
        {"sample_weight": W, "weights_of_s": "no"},
        r"must be True, False or None\. Got 'no'\. Leave",
    ),
    "dependence, gamma": (
        {"dependence": GDP(), "method": "gamma"},
        r"must be a DistanceCovariance or an HSIC .* for method='gamma'\. Got GDP\. Use",
    ),
    "dependence, gamma, uniform": (
        {"dependence": HSIC(reference="uniform"), "method": "gamma"},
        r"must be .* HSIC with reference='product' for method='gamma'\. Got HSIC\. Use",
    ),
    "dependence, weights": (
        {"dependence": GDP(), "sample_weight": W},
        r"must be a DistanceCovariance or an HSIC .*no function of s\. Got GDP\. .*weights_of_s=True",
    ),
    "dependence, weights, uniform": (
        {"dependence": HSIC(reference="uniform"), "sample_weight": W},
        r"must be .* HSIC with reference='product' .*no function of s\. Got HSIC\. .*weights_of_s=True",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_of_the_test_are_errors_that_name_the_fix(case):
    arguments, words = WRONG[case]
    argument = case.split(",")[0]
    for each in (False, True):
        with pytest.raises((ValueError, TypeError), match=f"^'{argument}' {words}"):
            independence_test(*data(), each=each, **arguments)


@pytest.mark.parametrize("name", ["independence_test", "confidence_interval"])
def test_rows_without_s_are_an_error(name):
    with pytest.raises(ArgumentError, match=r"^'s' must be the sensitive columns.* Got None\. Pass s, or a"):
        function(name)(data()[0])


def test_five_rows_are_too_few_and_six_are_not():
    z, s = data(6)
    assert independence_test(z, s, random_state=0).n == 6
    assert independence_test(z, s, method="gamma").n == 6
    with pytest.raises(ValueError, match=r"^'scores' must have at least 6 rows\. Got 5\. Pass more rows"):
        independence_test(z[:5], s[:5])


@pytest.mark.parametrize(
    "dependence",
    [
        None,
        HSIC(),
        HSIC(normalized=True, root=True),
        HSIC(estimator="unbiased"),
        HSIC(reference="uniform"),
        HSIC(Gaussian("scale-free", whiten=True)),
        DistanceCovariance(),
        DistanceCovariance(normalized=True, whiten=True),
        EIPM(),
        GDP(),
        BinnedMMD(),
        KernelHGR(),
        MutualInformation(),
        Adversary(),
    ],
    ids=lambda measure: "default" if measure is None else str(measure)[:40],
)
def test_every_measure_can_be_tested_plain_and_given(dependence):
    z, s = data()
    z = np.stack([z, 0.1 * s**2 + z**2], axis=1)
    for given in (None, Y):
        result = independence_test(
            z, s, dependence=dependence, given=given, n_permutations=19, random_state=0
        )
        assert result.exact
        assert 0.05 <= result.pvalue <= 1.0
        assert len(set(result.null)) == 19
        assert math.isfinite(result.statistic)


def test_several_columns_and_categories_are_tested_jointly_and_by_name():
    z, age = data()
    sex = np.array(["f", "m"])[Y]
    s = pd.DataFrame({"age": age, "sex": sex})
    joint = independence_test(z, s, random_state=0, n_permutations=99)
    assert joint.attributes == ("age", "sex")
    assert "age and sex" in str(joint)
    apart = independence_test(z, s, each=True, random_state=0, n_permutations=99)
    assert [result.attributes for result in apart] == [("age",), ("sex",)]
    assert [result.adjusted for result in apart] == holm([result.pvalue for result in apart])
    assert joint.adjusted is None
    assert "corrected for several tests" in str(apart[0])
    alone = independence_test(z, {"age": age}, random_state=0, n_permutations=99)
    assert (alone.pvalue, alone.null) == (apart[0].pvalue, apart[0].null)
    # The second column goes on with the generator: other draws than those of the first.
    other = independence_test(z, {"sex": sex}, random_state=0, n_permutations=99)
    assert other.null != apart[1].null


def test_labels_of_given_may_be_numbers_strings_and_booleans():
    z, s = data()
    results = [
        independence_test(z, s, given=labels, random_state=0, n_permutations=19)
        for labels in (
            Y,
            Y.astype(bool),
            np.array(["a", "b"])[Y],
            pl.Series(Y),
            pd.Series(Y, dtype="category"),
        )
    ]
    assert all(as_dict(result) == as_dict(results[0]) for result in results)


def test_a_numpy_integer_is_a_number_of_permutations_that_goes_into_json():
    result = independence_test(*data(), n_permutations=np.int64(19), random_state=0)
    assert result.n_permutations == 19
    assert json.dumps(result.to_dict())


def test_a_test_that_does_not_reject_says_that_this_is_no_evidence():
    z, s = data()
    words = "Not rejected at 5 %, which is no evidence of independence."
    accepted = independence_test(np.random.default_rng(1).normal(size=N), s, random_state=0)
    rejected = independence_test(s, s, random_state=0)
    assert accepted.pvalue > 0.05
    assert words in str(accepted)
    assert rejected.pvalue == 0.001
    assert str(rejected) == (
        "Dependence on s: p = 0.001 by HSIC aggregated over 3 pairs of bandwidths "
        "(permutation, 999 draws, level exact, n = 80). The score is tested in 64 levels of about equally "
        "many rows."
    )
    # What counts is the corrected p-value.
    corrected = dataclasses.replace(rejected, pvalue=0.03, adjusted=0.06)
    assert words in str(corrected)
    assert "p = 0.03 (0.06 corrected for several tests)" in str(corrected)
    weighted = independence_test(z, s, sample_weight=W, random_state=0)
    assert "wild bootstrap, 999 draws, level for large n" in str(weighted)


def test_pytest_does_not_take_test_results_for_test_cases():
    # Importing the name into this module, with warnings as errors, would fail the collection otherwise.
    assert TestResult.__test__ is False
    assert "__test__" not in {field.name for field in dataclasses.fields(TestResult)}
    assert "__test__" not in independence_test(*data(), n_permutations=19).to_dict()


def test_intervals_and_equivalence_results_print_as_sentences():
    interval = Interval(
        0.2, 0.1, 0.3, 0.95, "HSIC", "HSIC of these kernels", "bootstrap", ("age", "sex"), 1200
    )
    assert str(interval) == (
        "HSIC on age and sex is 0.2, 95% interval [0.1, 0.3] (bootstrap, n = 1,200). "
        "Target: HSIC of these kernels."
    )
    beside = dataclasses.replace(interval, chance=0.01, chance_high=0.02, notes=("A note.",))
    assert "Under independence: 0.01 on average, 95% below 0.02." in str(beside)
    assert str(beside).endswith(" A note.")
    equivalent = EquivalenceResult(0.01, 0.1, 0.02, 0.06, 0.05, "HSIC", "HSIC", "bootstrap", ("age",), 90)
    assert equivalent.below
    assert "Dependence on age is below 0.1 at level 0.05 (p = 0.02)" in str(equivalent)
    larger = dataclasses.replace(equivalent, pvalue=0.06)
    assert not larger.below
    assert "is not shown to be below" in str(larger)
    assert interval.to_frame()["low"].tolist() == [0.1]


class ThreadCounter(HSIC):
    seen: ClassVar[set[int]] = set()
    blas: ClassVar[set[int]] = set()

    def _permuted(self, *arguments):
        self.seen.add(torch.get_num_threads())
        self.blas.update(threads_of_blas())
        return super()._permuted(*arguments)


def threads_of_blas():
    """Return how many threads each BLAS takes that is loaded."""
    return [one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"]


def test_inference_takes_one_thread_and_restores_what_it_found():
    before = torch.get_num_threads()
    try:
        with threadpoolctl.threadpool_limits(2):
            torch.set_num_threads(2)
            blas = threads_of_blas()
            assert set(blas) == {2}
            z = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
            independence_test(z, z, dependence=ThreadCounter(), n_permutations=19, random_state=0)
            assert ThreadCounter.seen == ThreadCounter.blas == {1}
            assert torch.get_num_threads() == 2
            with pytest.raises(ValueError, match="n_permutations"):
                independence_test(z, z, n_permutations=0)
            assert torch.get_num_threads() == 2
            assert threads_of_blas() == blas
    finally:
        torch.set_num_threads(before)


def test_a_whitened_measure_is_tested_by_both_bootstraps():
    rng = np.random.default_rng(0)
    z, s = rng.normal(size=(90, 2)), rng.normal(size=90)
    measure = DistanceCovariance(whiten=True)
    groups, weights = np.arange(90) // 3, rng.uniform(0.5, 1.5, 90)
    by_group = independence_test(z, s, dependence=measure, groups=groups, n_permutations=19, random_state=0)
    by_weight = independence_test(
        z, s, dependence=measure, sample_weight=weights, n_permutations=19, random_state=0
    )
    assert (by_group.method, by_weight.method) == ("cluster bootstrap", "wild bootstrap")


def test_a_profile_keeps_enough_groups_where_one_is_very_large():
    groups = torch.cat((torch.zeros(20_500, dtype=torch.int64), torch.arange(1, 501)))
    kept = some_rows(len(groups), groups, 20_000, torch.Generator().manual_seed(0), 20)
    assert len(groups[kept].unique()) >= 20
    for group in groups[kept].unique():
        assert (groups[kept] == group).sum() == (groups == group).sum()
    generators = (torch.Generator().manual_seed(seed) for seed in range(200))
    fewest = min(len(groups[some_rows(len(groups), groups, 20_000, one, 20)].unique()) for one in generators)
    assert fewest == 20


def test_more_labels_than_a_curve_has_points_are_an_error_that_names_the_column():
    labels = np.array([f"L{k:04d}" for k in range(1_100)] * 3)
    score = np.random.default_rng(0).normal(size=len(labels))
    with pytest.raises(ValueError, match=r"at most 1,024 labels in column 'region'\. Got 1,100\. Merge"):
        inference.conditional_curve(score, {"region": labels}, random_state=0)
