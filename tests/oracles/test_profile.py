"""The localized profile against loops over rows and points."""

import math

import numpy as np
import pytest

from frhsic.inference import _profile, localized_profile
from tests.helpers import median_distance as median


def sample(n=120, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    return np.where(s > 1, 1.5, 0.0) + rng.normal(size=n), s


def naive(z, s, w, point):
    n, w = len(z), w / w.sum()
    K = np.exp(-0.5 * (np.subtract.outer(z, z) / median(z)) ** 2)
    v = np.array([w[i] * (s[i] == point) for i in range(n)])
    c = v / v.sum() - w
    return math.sqrt(max(c @ K @ c, 0.0))


@pytest.mark.parametrize("weighted", [False, True])
def test_contrasts_are_mmds_between_a_value_and_all(weighted):
    z, s = sample()
    s = np.digitize(s, [-0.5, 0.5, 1.0]).astype(float)
    w = np.random.default_rng(1).uniform(0.2, 3.0, len(z)) if weighted else np.ones(len(z))
    options = {"random_state": 0, "sample_weight": w if weighted else None}
    found = localized_profile(z, np.array(list("abcd"))[s.astype(int)], **options)
    assert found.points == (0.0, 1.0, 2.0, 3.0)
    assert sum(found.mass) == pytest.approx(1.0)
    for point, contrast in zip(found.points, found.contrast, strict=True):
        assert contrast == pytest.approx(naive(z, s, w, point), rel=1e-5)


def test_cells_are_ranges_of_equally_many_rows():
    z, s = sample()
    found = localized_profile(z, s, random_state=0)
    ranges = np.array_split(np.argsort(s), 10)  # 2 x 120^(1/3) is 9.9
    assert len(found.points) == 10
    for rows, contrast in zip(ranges, found.contrast, strict=True):
        inside = np.isin(np.arange(len(s)), rows).astype(float)
        assert contrast == pytest.approx(naive(z, inside, np.ones(len(z)), 1.0), rel=1e-5)


def test_categories_match_exactly():
    z, s = sample()
    group = np.digitize(s, [-0.5, 0.5, 1.0])
    found = localized_profile(z, np.array(list("abcd"))[group], random_state=0)
    assert found.points == (0.0, 1.0, 2.0, 3.0)
    assert found.mass == pytest.approx(np.bincount(group) / len(z))
    for point, contrast in zip(found.points, found.contrast, strict=True):
        assert contrast == pytest.approx(naive(z, group, np.ones(len(z)), point), rel=1e-5)


def test_the_limit_of_chance_is_that_of_permutations(monkeypatch):
    rng = np.random.default_rng(0)
    z, s = rng.exponential(size=1_500), rng.normal(size=1_500)
    permuted = localized_profile(z, s, n_permutations=999, random_state=0)
    monkeypatch.setattr(_profile, "_PERMUTED_ROWS", 100)
    limit = localized_profile(z, s, n_permutations=999, random_state=0)
    assert limit.contrast == pytest.approx(permuted.contrast)
    assert limit.chance != permuted.chance
    assert limit.chance == pytest.approx(permuted.chance, rel=0.1)
    # Weights take the limit, too; these are told apart by a hair, and the points may be.
    w = np.ones(1_500) + 1e-9 * rng.random(1_500)
    assert localized_profile(
        z, s, n_permutations=999, random_state=0, sample_weight=w
    ).chance == pytest.approx(limit.chance, rel=0.05)


def test_equal_weights_are_none_and_rows_of_no_weight_are_not_there():
    z, s = sample()
    plain = localized_profile(z, s, random_state=0)
    assert localized_profile(z, s, random_state=0, sample_weight=np.full(len(z), 3.0)) == plain
    w = np.where(np.arange(len(z)) < 30, 0.0, 1.0)
    assert localized_profile(z, s, random_state=0, sample_weight=w) == localized_profile(
        z[30:], s[30:], random_state=0
    )


def test_it_says_where_and_that_nothing_found_is_no_evidence():
    z, s = sample(600)
    found = localized_profile(z, {"age": s}, random_state=0)
    assert max(found.above) > 1
    assert str(found).startswith(
        "The law of z along age differs from its law overall by more than chance at "
    )
    assert str(found).endswith("for all points at once, n = 600).")
    nothing = localized_profile(np.random.default_rng(1).normal(size=600), {"age": s}, random_state=0)
    assert nothing.above == ()
    assert "which is no evidence of independence" in str(nothing)
    assert found.to_frame().columns.tolist() == ["points", "contrast", "chance", "mass"]


def test_several_columns_of_s_are_an_error():
    z, s = sample()
    with pytest.raises(ValueError, match=r"^'s' must be one column for a profile\. Got 2\. Draw"):
        localized_profile(z, np.column_stack((s, s)))
