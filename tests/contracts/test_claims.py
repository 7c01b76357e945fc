"""What an audit claims: in order, all together at its level, and never against itself."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from frhsic.auditing import Audit, Claim, Column, audit
from frhsic.auditing._claims import (
    Evidence,
    Shares,
    SignedCurve,
    adjust_pvalues,
    error_of_mean,
    find_signs,
    find_signs_about_zero,
    make_claims,
)
from frhsic.inference import Curve, Profile, TestResult

AGE = Column("age", "continuous", 4, low=20.0, mean=30.0, high=50.0)
PLACES = re.compile(r"(above|below|differs)[^.]* (near|between|for) ")


def a_test(p: float, corrected: float | None = None) -> TestResult:
    return TestResult(1.0, p, "permutation", "HSIC", ("age",), 100, True, 999, corrected)


def a_curve(mean: list[float], half: float, level: float = 0.95) -> Curve:
    points = tuple(20.0 + 10.0 * i for i in range(len(mean)))
    low, high = tuple(x - half for x in mean), tuple(x + half for x in mean)
    mass = (1.0 / len(mean),) * len(mean)
    return Curve(points, tuple(mean), low, high, mass, sum(mean) / len(mean), level, "t", ("age",), 100)


def a_profile() -> Profile:
    return Profile((20.0, 30.0), (0.5, 0.1), (0.2, 0.2), (0.5, 0.5), 0.95, ("age",), 100)


def found(p: float) -> Evidence:
    return Evidence(a_test(p), SignedCurve(a_curve([0.0, 1.0, 2.0, 3.0], 0.1), (2, 3), (0, 1)), a_profile())


# ---- order -------------------------------------------------------------------------------------------------


def test_places_are_claimed_only_after_the_test_rejects() -> None:
    assert make_claims([found(0.06)], None, [AGE], 0.05) == ()
    assert make_claims([found(0.05)], None, [AGE], 1.0 - 0.95) == (
        Claim("dependence", "depends", ("age",)),
        Claim("dependence", "above", ("age",), None, (40.0, 50.0)),
        Claim("dependence", "below", ("age",), None, (20.0, 30.0)),
        Claim("dependence", "differs", ("age",), None, (20.0,)),
    )


def test_the_corrected_p_value_decides_not_the_plain_one() -> None:
    one = found(0.01)._replace(test=a_test(0.01, 0.2))
    assert make_claims([one], None, [AGE], 0.05) == ()


def test_places_within_an_outcome_need_the_test_within_outcomes() -> None:
    curve = SignedCurve(a_curve([0.0, 1.0, 2.0, 3.0], 0.1), (3,), ())
    one = Evidence(a_test(0.5), within=a_test(0.5), labels={"yes": curve}, calibration=curve)
    assert make_claims([one], None, [AGE], 0.05) == (Claim("calibration", "above", ("age",), None, (50.0,)),)
    assert make_claims([one._replace(within=a_test(0.01), calibration=None)], None, [AGE], 0.05) == (
        Claim("within outcomes", "depends", ("age",)),
        Claim("within outcomes", "above", ("age",), "yes", (50.0,)),
    )


def test_extremes_and_rare_labels_are_in_no_claim() -> None:
    narrow = Column("age", "continuous", 4, low=25.0, mean=30.0, high=45.0)
    points = [claim.points for claim in make_claims([found(0.01)], None, [narrow], 0.05)]
    assert points == [(), (40.0,), (30.0,)]


# ---- levels ------------------------------------------------------------------------------------------------


def test_an_attribute_costs_no_more_than_its_share_and_shares_sum_to_alpha() -> None:
    shares = Shares(0.05, attributes=5, questions=3, labels=2)
    where, within = 2 * (1 - shares.where), 2 * (1 - shares.within)
    assert 5 * (where + within + (1 - shares.calibration)) == pytest.approx(0.05)
    assert Shares(0.05, attributes=1, kinds=1).where == pytest.approx(0.95)
    assert 1 / (shares.n_permutations + 1) <= 0.8 * 0.05 / shares.tests


def test_corrected_p_values_reject_any_independent_attribute_in_at_most_alpha_of_samples() -> None:
    """Under independence of all, with p-values that are uniform and as unrelated as they can be."""
    rng, alpha = np.random.default_rng(0), 0.05
    p = rng.random((20_000, 6))
    passed = np.array([adjust_pvalues(list(row[:5]), row[5]) for row in p]) <= alpha
    assert passed.any(axis=1).mean() < alpha + 3 * math.sqrt(alpha / 20_000)
    assert passed.any(axis=1).mean() > 0.8 * alpha
    assert (passed[:, 5] >= passed[:, :5].any(axis=1)).all()  # no attribute without all of them together
    # One attribute depends beyond doubt: the others have the level that is theirs.
    p[:, 0] = 0.0
    passed = np.array([adjust_pvalues(list(row[:5]), row[5]) for row in p]) <= alpha
    assert passed[:, 1:5].any(axis=1).mean() == pytest.approx(1 - (1 - alpha / 5) ** 4, abs=0.005)


def test_a_single_attribute_has_no_gate() -> None:
    assert adjust_pvalues([0.03], None) == [0.03]
    assert adjust_pvalues([0.03], None, 3) == pytest.approx([0.09])


# ---- signs -------------------------------------------------------------------------------------------------


def test_a_sign_needs_the_error_of_the_overall_mean_too() -> None:
    """A category whose score hardly varies has a band of no width, and the overall mean is uncertain."""
    curve = a_curve([0.51, 0.50, 0.49, 0.48], 0.0)
    assert len(find_signs(curve, 0.0).above) == 2
    assert find_signs(curve, 0.1).above == find_signs(curve, 0.1).below == ()


def test_signs_follow_the_formula_written_out() -> None:
    mean, half, error = [0.0, 0.30, 0.7, 1.0], 0.2, 0.06
    curve = a_curve(mean, half)
    k = norm.ppf(1 - 0.05 / 8)
    reach = math.sqrt((1 - 2 / 4) * half**2 + (k * error) ** 2)
    result = find_signs(curve, error)
    assert result.above == tuple(i for i in range(4) if mean[i] - 0.5 > reach) == (3,)
    assert result.below == tuple(i for i in range(4) if 0.5 - mean[i] > reach)
    wider = find_signs(curve, error, nested=False)
    assert wider.above == tuple(i for i in range(4) if mean[i] - 0.5 > half + k * error)
    assert find_signs_about_zero(curve).above == (1, 2, 3)


def test_the_variance_of_a_gap_is_that_of_the_module_docstring() -> None:
    rng, n, sizes = np.random.default_rng(1), 400, []
    for _ in range(4_000):
        level = rng.random(n) < 0.3
        f = np.where(level, 1.0 * rng.normal(size=n), 3.0 * rng.normal(size=n))
        sizes.append(f[level].mean() - f.mean())
    formula = (1 - 2 * 0.3) * 1.0 / (0.3 * n) + (0.3 * 1.0 + 0.7 * 9.0) / n
    assert np.var(sizes) == pytest.approx(formula, rel=0.1)


def test_the_error_of_a_mean_by_rows_weights_and_groups() -> None:
    rng = np.random.default_rng(0)
    f = torch.from_numpy(rng.normal(size=60))
    assert error_of_mean(f, None, None) == pytest.approx(float(f.std()) / math.sqrt(60))
    groups = torch.arange(60) // 2
    pairs = f.reshape(30, 2).mean(dim=1)
    assert error_of_mean(f, None, groups) == pytest.approx(float(pairs.std()) / math.sqrt(30))
    w = torch.from_numpy(rng.uniform(1, 3, 60))
    p = w / w.sum()
    wanted = math.sqrt(sum(float(p[i] * (f[i] - p @ f)) ** 2 for i in range(60)) * 60 / 59)
    assert error_of_mean(f, w, None) == pytest.approx(wanted)


# ---- sentences ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def audits() -> list[Audit]:
    made = []
    for draw, size in enumerate((0.0, 0.5, 1.0)):
        rng = np.random.default_rng([22, draw])
        s = {"age": rng.integers(18, 30, 120), "sex": rng.choice(["f", "m"], 120)}
        score = rng.normal(size=120) + size * (s["sex"] == "m")
        made.append(audit(score, sensitive_features=s, random_state=draw))
    return made


def test_sentences_say_what_is_claimed_and_nothing_else(audits: list[Audit]) -> None:
    for made in audits:
        paragraphs = made.sentences()
        for one, paragraph in zip(made.attributes, paragraphs, strict=False):
            claims = [claim for claim in made.claims if claim.attributes == one.names]
            says = {claim.says for claim in claims}
            assert (f"The score depends on {one.name} (" in paragraph) == ("depends" in says)
            assert bool(PLACES.search(paragraph)) == bool(says - {"depends"})
            shows = "do not show that the score depends" in paragraph
            assert shows == ("depends" not in says)
            unplaced = "do not show at which values" in paragraph
            assert unplaced == (says == {"depends"})
        together = [claim for claim in made.claims if len(claim.attributes) > 1]
        assert (f"Jointly: The score depends on {made.joint.name}" in str(made)) == bool(together)  # type: ignore[union-attr]
        if any(len(claim.attributes) == 1 for claim in made.claims):
            assert together
    assert audits[0].claims == ()
    assert "states nothing about the population" in str(audits[0])
    assert any("sex" in claim.attributes for claim in audits[2].claims)
    assert "hold together with 95% confidence" in str(audits[2])


def test_the_dictionary_holds_the_claims(audits: list[Audit]) -> None:
    made = audits[2]
    assert made.to_dict()["claims"] == [claim.to_dict() for claim in made.claims]


# ---- notes -------------------------------------------------------------------------------------------------


def test_a_joint_gap_of_combinations_with_one_row_each_is_within_what_chance_gives() -> None:
    """Sixty independent rows in four columns of six labels each: most combinations have one row."""
    rng = np.random.default_rng(0)
    town = np.array([f"t{i % 6}" for i in range(60)])
    others = {f"c{j}": np.array([f"x{i}" for i in rng.integers(0, 6, 60)]) for j in range(3)}
    made = audit(rng.normal(size=60), sensitive_features={"town": town, **others}, random_state=0)
    assert made.joint is not None
    gap = made.joint.measures["gdp"]
    assert gap.low == 0.0
    assert gap.estimate < 0.3 < 0.7 < gap.plug_in < gap.high
    assert all("gdp" in one.measures for one in made.attributes)


def copies(distinct: int, times: int, decimals: int | None = None) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    score, age = rng.normal(size=distinct), rng.integers(18, 90, distinct)
    if decimals is not None:
        score = score.round(decimals)
    rows = np.repeat(np.arange(distinct), times)
    return {"scores": score[rows], "sensitive_features": {"age": age[rows]}}


@pytest.mark.parametrize(("times", "decimals", "noted"), [(2, None, True), (1, None, False), (2, 0, False)])
def test_repeated_rows_of_a_continuous_score_are_noted(times: int, decimals: int | None, noted: bool) -> None:
    arguments = copies(80, times, decimals)
    made = audit(arguments.pop("scores"), **arguments, random_state=0)
    assert any("same score and attributes" in note for note in made.notes) is noted
