"""The level of tests where rows are not independent."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from frhsic.dependence import HSIC
from frhsic.inference import independence_test

DRAWS = 100


def each_row_twice(rng):
    z, s = rng.normal(size=(2, 60))
    groups = np.repeat(np.arange(60), 2)
    return z[groups], s[groups], groups


def people(rng, sizes=5, varying=0.0):
    """40 people with several rows each; s is that of the person, or varies inside."""
    groups = np.repeat(np.arange(40), sizes)
    z = rng.normal(size=40)[groups] + 0.5 * rng.normal(size=len(groups))
    return z, rng.normal(size=40)[groups] + varying * rng.normal(size=len(groups)), groups


def unequal(rng):
    return people(rng, rng.permutation(np.arange(40) % 25 + 1))


def varying(rng):
    return people(rng, varying=0.5)


def share(draw, *, grouped, draws=DRAWS, seed=0, **arguments):
    rng = np.random.default_rng(seed)
    rejected = 0
    for i in range(draws):
        z, s, groups = draw(rng)
        result = independence_test(
            z, s, groups=groups if grouped else None, n_permutations=39, random_state=i, **arguments
        )
        rejected += result.pvalue <= 0.05
    return rejected


@pytest.mark.parametrize("draw", [each_row_twice, people, unequal, varying])
def test_level_of_groups_is_held_and_that_of_rows_is_not(draw):
    # One Gaussian kernel: the default's three take four times as long, and their levels are a benchmark.
    assert share(draw, grouped=True, dependence=HSIC()) <= stats.binom.ppf(0.999, DRAWS, 0.05)
    few = 40  # of which more than half are rejected
    assert share(draw, grouped=False, draws=few, dependence=HSIC()) > 2 * stats.binom.ppf(0.999, few, 0.05)


def test_level_of_the_default_test_of_groups_is_held():
    assert share(people, grouped=True, seed=1) <= stats.binom.ppf(0.999, DRAWS, 0.05)


@pytest.mark.parametrize("draw", [people, unequal, varying])
def test_dependence_between_groups_is_seen(draw):
    z, s, groups = draw(np.random.default_rng(0))
    assert independence_test(z + 2.0 * s, s, groups=groups, random_state=0).pvalue <= 0.01


def test_sentences_name_groups_and_rows():
    z, s, groups = people(np.random.default_rng(0))
    result = independence_test(z, s, groups=groups, n_permutations=19, random_state=0)
    assert (result.n, result.n_rows, result.exact) == (40, 200, True)
    assert "level exact, n = 40 groups of 200 rows" in str(result)
    z, s, groups = varying(np.random.default_rng(0))
    result = independence_test(z, s, groups=groups, n_permutations=19, random_state=0)
    assert not result.exact
    assert "(cluster bootstrap, 19 draws, level for large n, n = 40 groups of 200 rows)" in str(result)
    assert "as s varies inside groups" in str(result)
    z, s, groups = unequal(np.random.default_rng(0))
    result = independence_test(z, s, groups=groups, n_permutations=19, random_state=0)
    assert "too few groups are of equal size (25 sizes of 40 groups)" in str(result)


def test_groups_inside_levels_are_permuted_and_others_get_signs():
    z, s, groups = people(np.random.default_rng(0))
    inside = independence_test(z, s, groups=groups, given=groups % 2, n_permutations=19, random_state=0)
    across = independence_test(
        z, s, groups=groups, given=np.arange(200) % 2, n_permutations=19, random_state=0
    )
    assert inside.exact
    assert inside.n == across.n == 40
    assert not across.exact
    assert "as groups have rows in several labels of 'given'" in str(across)


def test_weights_of_groups_travel_and_weights_of_rows_call_for_signs():
    rng = np.random.default_rng(0)
    z, s, groups = people(rng)
    of_s = independence_test(
        z, s, groups=groups, sample_weight=np.exp(s), weights_of_s=True, n_permutations=19, random_state=0
    )
    of_rows = independence_test(
        z, s, groups=groups, sample_weight=rng.uniform(1, 2, 200), n_permutations=19, random_state=0
    )
    assert of_s.exact
    assert "as the weights are no function of s" in str(of_rows)


def test_every_row_a_group_is_no_group():
    z, s = np.random.default_rng(0).normal(size=(2, 30))
    plain = independence_test(z, s, n_permutations=19, random_state=0)
    assert independence_test(z, s, groups=np.arange(30), n_permutations=19, random_state=0) == plain


def test_many_rows_of_few_groups_are_permuted_exactly():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 100)
    s = rng.normal(size=60)[groups]
    result = independence_test(rng.normal(size=60)[groups] + rng.normal(size=6_000), s, groups=groups)
    assert result.exact
    assert result.n == 60


def test_each_column_takes_the_groups():
    z, s, groups = people(np.random.default_rng(0))
    frame = {"age": s, "income": -s}
    for result in independence_test(z, frame, each=True, groups=groups, n_permutations=19, random_state=0):
        assert (result.n, result.n_rows) == (40, 200)


def test_what_groups_cannot_do_is_said():
    z, s, groups = varying(np.random.default_rng(0))
    with pytest.raises(
        ValueError, match=r"'groups' must be None for method='gamma'.*Use method='permutation'"
    ):
        independence_test(z, s, groups=groups, method="gamma")
    with pytest.raises(
        ValueError, match=r"'groups' must be at least 20 where s varies inside groups.*Got 10"
    ):
        independence_test(z, s, groups=groups % 10)
    with pytest.raises(ValueError, match=r"'groups' must be at least 6.*Got 3"):
        independence_test(z, groups % 3, groups=groups % 3)
    with pytest.raises(ValueError, match=r"'groups' must have 200 rows like 'scores'"):
        independence_test(z, s, groups=groups[1:])
