"""What holds for every certificate: refusals that say how to mend, honest words, results to store."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from frhsic.data import to_sensitive
from frhsic.dependence import HSIC, DistanceCovariance
from frhsic.inference.bounds import _certificate, _worst_case
from frhsic.inference.bounds._certificate import certify
from frhsic.inference.bounds._complexity import (
    TrainedOn,
    linear_complexity,
    network_complexity,
    sampled_complexity,
    uniform_bound,
)
from frhsic.inference.bounds._worst_case import worst_case_head
from frhsic.kernels import Delta, Gaussian, Laplace, Linear, OnColumns

FIXED = HSIC(Gaussian(1.0), Gaussian(1.0))
TRAIN = TrainedOn(2000, 0.001, 0.01)


def sample(n=120, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    return np.stack([s + rng.normal(size=n), rng.normal(size=n)], axis=1), s


def quick(z, s, **changes):
    return certify(z, s, **({"dependence": FIXED, "n_permutations": 19, "random_state": 0} | changes))


@pytest.mark.parametrize(
    ("dependence", "words"),
    [
        (HSIC(), "bandwidth='median'"),
        (HSIC(Gaussian("scale-free"), Gaussian(1.0)), "bandwidth='scale-free'"),
        (HSIC(Gaussian(1.0), Gaussian("median")), "in kernel_s"),
        (HSIC(Linear() + 0.5 * Gaussian(), Gaussian(1.0)), "in kernel_z"),
        (HSIC(OnColumns(Gaussian(), (0,)), Gaussian(1.0)), "bandwidth='median'"),
        (HSIC(Gaussian(1.0, whiten=True), Gaussian(1.0)), "whiten=True"),
        (HSIC(Linear(whiten=True), Gaussian(1.0)), "whiten=True"),
    ],
)
def test_a_rule_that_is_not_yet_a_number_is_refused_with_the_cure(dependence, words):
    z, s = sample()
    with pytest.raises(ValueError, match="calibrate\\(z_other, s_other, freeze=True\\)") as refused:
        quick(z, s, dependence=dependence)
    assert words in str(refused.value)
    with pytest.raises(ValueError, match="'dependence' must have numbers"):
        worst_case_head(z, s, dependence=dependence)


def test_calibrating_on_other_rows_mends_it():
    z, s = sample(200)
    other = HSIC(Gaussian("scale-free", whiten=True)).calibrate(
        torch.tensor(z[:80]), torch.tensor(s[:80]), freeze=True
    )
    assert other.kernel_z.fixed
    certificate = quick(z[80:], s[80:], dependence=other)
    value = other(torch.tensor(z[80:]), torch.tensor(s[80:])).item()
    assert certificate.hsic == pytest.approx(value, rel=1e-9)
    assert certificate.n == 120


@pytest.mark.parametrize(
    "changes",
    [{"estimator": "unbiased"}, {"normalized": True}, {"root": True}, {"reference": "uniform"}],
)
def test_other_forms_of_hsic_are_refused(changes):
    z, s = sample()
    with pytest.raises(ValueError, match="'dependence' must be the plain biased HSIC") as refused:
        quick(z, s, dependence=HSIC(Gaussian(1.0), Gaussian(1.0), **changes))
    assert next(iter(changes)) in str(refused.value)


def test_other_measures_are_refused():
    z, s = sample()
    with pytest.raises(TypeError, match=r"'dependence' must be an HSIC\. Got DistanceCovariance"):
        quick(z, s, dependence=DistanceCovariance())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"confidence_level": 0.0}, "'confidence_level' must lie between 0 and 1"),
        ({"confidence_level": 1.0}, "'confidence_level' must lie between 0 and 1"),
        ({"n_permutations": 18}, "'n_permutations' must be at least 19"),
        ({"ridge_z": 0.0}, "'ridge_z' must be a positive number"),
        ({"ridge_s": -1.0}, "'ridge_s' must be a positive number"),
        ({"train": TRAIN, "dependence": HSIC(Linear(), Gaussian(1.0))}, "'train' must come with bounded"),
        ({"train": TRAIN, "dependence": HSIC(Laplace(1.0), Gaussian(1.0))}, "Lipschitz feature map"),
    ],
)
def test_arguments_outside_their_range_are_refused(changes, message):
    z, s = sample()
    with pytest.raises(ValueError, match=message):
        quick(z, s, **changes)


def test_train_must_be_a_trained_on():
    z, s = sample()
    with pytest.raises(TypeError, match=r"'train' must be a TrainedOn or None\. Got dict"):
        quick(z, s, train={"n": 3})


@pytest.mark.parametrize("fields", [(1, 0.1, 0.1), (10, -0.1, 0.1), (10, 0.1, math.nan)])
def test_trained_on_refuses_what_cannot_be(fields):
    with pytest.raises(ValueError, match="must be"):
        TrainedOn(*fields)


def test_rows_must_match_and_s_must_vary_under_its_kernel():
    z, s = sample()
    with pytest.raises(ValueError, match=r"'s' must have 120 rows like 'z'\. Got 119"):
        quick(z, s[1:])
    with pytest.raises(ValueError, match=r"'s' must have 120 rows like 'z'\. Got 119"):
        quick(z, to_sensitive(s[1:]))
    with pytest.raises(ValueError, match="'s' must vary under its kernel"):
        quick(z, s, dependence=HSIC(Gaussian(1.0), Gaussian(1e9)))
    with pytest.raises(ValueError, match="at least 40 rows"):
        certify(z[:39], s[:39])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("confidence_level", 0.8),
        ("n_permutations", 29),
        ("random_state", 1),
        ("ridge_z", 0.1),
        ("ridge_s", 0.1),
        ("train", TRAIN),
        ("dependence", HSIC(Gaussian(2.0), Gaussian(1.0))),
    ],
)
def test_every_argument_changes_something(name, change):
    z, s = sample()
    before, after = (json.dumps(quick(z, s, **arguments).to_dict()) for arguments in ({}, {name: change}))
    assert before != after


def test_the_same_random_state_gives_the_same_certificate():
    z, s = sample()
    assert quick(z, s) == quick(z, s)
    assert quick(z, s, dependence=None) == quick(z, s, dependence=None)


def test_without_a_measure_some_rows_fix_the_bandwidths_and_are_left_out():
    z, s = sample(300)
    certificate = quick(z, s, dependence=None)
    assert certificate.n == 270
    assert certificate.notes[0].startswith("30 random rows fixed the bandwidths and were left out")
    assert quick(z[:50], s[:50], dependence=None).n == 30
    head = worst_case_head(z, s, random_state=0)
    assert head.n == len(set(head.rows)) == 270
    assert head.predict(z[list(head.rows)]) == pytest.approx(head.values)


def test_every_bound_speaks_in_sentences_and_knows_when_it_says_nothing():
    z, s = sample()
    certificate = quick(z, s, train=TRAIN)
    names = [bound.name for bound in certificate.bounds]
    assert len(set(names)) == len(names) == 11
    for bound in certificate.bounds:
        assert bound.certifies.endswith(".")
        assert ": for anyone who" in bound.certifies
        assert bound.vacuous_when.startswith("It says nothing")
        assert str(bound).startswith(f"{bound.name} ({bound.kind})")
        assert ("Vacuous here" in str(bound)) == bound.vacuous
        if bound.kind == "in-sample":
            assert bound.certifies.startswith("On these rows")
        assert certificate.bound(bound.name) is bound
    with pytest.raises(ValueError, match=r"'name' must be a bound of this certificate\. Got 'nothing'"):
        certificate.bound("nothing")


def test_a_certificate_prints_briefly_and_never_says_fair():
    z, s = sample()
    certificate = quick(pd.DataFrame(z), pd.DataFrame({"age": s}), train=TRAIN)
    text = str(certificate)
    assert text.startswith("Dependence on age: biased HSIC ")
    assert len(text.splitlines()) == 1 + len(certificate.bounds) + len(certificate.notes)
    everything = text + "".join(map(str, certificate.bounds)) + "".join(map(str, certificate.heads))
    assert "fair" not in everything.lower()
    assert "population (finite-sample)" in text
    assert "khgr (in-sample)" in text


def test_frames_have_a_row_for_each_bound_and_each_resolution():
    z, s = sample()
    certificate = quick(z, s)
    frame = certificate.to_frame()
    assert list(frame["name"]) == [bound.name for bound in certificate.bounds]
    assert list(certificate.heads_frame()["m"]) == list(range(1, len(certificate.heads) + 1))
    assert json.loads(json.dumps(certificate.to_dict()))["heads"][0]["m"] == 1
    assert set(json.loads(json.dumps(worst_case_head(z, s, dependence=FIXED).to_dict()))) == {
        *("m", "rms", "gdp", "n"),
        *("rows", "coefficients", "values", "notes"),
    }


def test_a_linear_part_covers_linear_heads_and_costs_the_finite_sample_bound():
    """The worst head then contains the best linear one, scaled to norm one."""
    z, s = sample()
    gaussian = quick(z, s)
    both = quick(z, s, dependence=HSIC(Gaussian(1.0) + Linear(), Gaussian(1.0)))
    assert any("linear head" in note for note in gaussian.notes)
    assert not any("linear head" in note for note in both.notes)
    assert both.bounds[0].name == "population_asymptotic"
    assert any("not bounded" in note for note in both.notes)
    linear = quick(z, s, dependence=HSIC(Linear(), Gaussian(1.0)))
    for two, one in zip(both.heads, linear.heads, strict=True):
        assert two.worst_rms >= one.worst_rms
    unbounded_s = quick(z, s, dependence=HSIC(Gaussian(1.0), Linear()))
    assert "conditional_mmd_lower" not in [bound.name for bound in unbounded_s.bounds]
    assert len(unbounded_s.heads) == 1


def test_categories_have_one_direction_less_than_levels():
    z, _ = sample()
    s = np.array(["a", "b", "c"])[np.arange(120) % 3]
    certificate = quick(z, s, dependence=HSIC(Gaussian(1.0), Delta()))
    assert len(certificate.heads) == 2
    assert certificate.n == 120
    # The default kernel of categories has no bandwidth: nothing is left to fix on other rows.
    assert quick(z, s, dependence=HSIC(Gaussian(1.0))).hsic == pytest.approx(certificate.hsic)


def test_a_half_without_a_rare_level_leaves_the_crossfitted_gap_out():
    z, _ = sample(40)
    s = np.array(["a"] * 39 + ["b"])
    certificate = quick(z, s, dependence=HSIC(Gaussian(1.0), Delta()))
    assert math.isnan(certificate.heads[0].crossfit_gdp)
    assert "worst_head_crossfit" not in [bound.name for bound in certificate.bounds]


def test_a_constant_z_has_no_worst_head_and_certifies_nothing():
    _, s = sample()
    certificate = quick(np.ones((120, 2)), s)
    assert certificate.hsic == pytest.approx(0.0, abs=1e-20)
    assert certificate.heads[-1].worst_rms == pytest.approx(0.0, abs=1e-7)
    assert certificate.bound("population").vacuous


def test_many_rows_are_thinned_for_heads_but_not_for_the_population_bound(monkeypatch):
    monkeypatch.setattr(_worst_case, "_ROWS_OF_FULL_RANK", 90)
    z, s = sample(1000)
    certificate = quick(z, s, max_rows=100)
    value = FIXED(torch.tensor(z), torch.tensor(s)).item()
    assert certificate.hsic == pytest.approx(value, rel=1e-9)
    assert certificate.n == 1000
    assert any("100 random rows of 1,000" in note for note in certificate.notes)
    # The quantile of the thinned rows is brought to the size of all rows.
    monkeypatch.undo()
    full = certify(z, s, dependence=FIXED, n_permutations=19, random_state=0)
    assert certificate.bound("population").value == pytest.approx(full.bound("population").value, rel=1e-9)
    thinned, all_rows = (c.bound("population_asymptotic").value for c in (certificate, full))
    assert thinned == pytest.approx(all_rows, rel=0.25)


def test_an_s_of_high_rank_is_thinned_further_and_cut_to_64_directions(monkeypatch):
    monkeypatch.setattr(_worst_case, "_ROWS_OF_FULL_RANK", 150)
    z, _ = sample(300)
    s = np.random.default_rng(0).normal(size=(300, 6))
    certificate = quick(z, s, max_rows=200)
    assert len(certificate.heads) == 64
    assert any("150 random rows of 300" in note for note in certificate.notes)
    assert any("64 leading ones" in note for note in certificate.notes)


def test_of_many_rows_one_pass_over_features_gives_the_hsic_of_all_pairs(monkeypatch):
    z, s = sample(600)
    z = z[:, :1]
    by_pairs = quick(z, s)
    monkeypatch.setattr(_certificate, "_PAIRS", 100)
    by_features = quick(z, s)
    assert by_features.n == 600
    assert by_features.hsic == pytest.approx(by_pairs.hsic, rel=1e-9)
    population = by_features.bound("population")
    assert population.value == pytest.approx(by_pairs.bound("population").value, rel=1e-9)
    assert population.n_needed == by_pairs.bound("population").n_needed


def test_a_wide_z_of_many_rows_is_certified_on_fewer_of_them_and_says_so(monkeypatch):
    monkeypatch.setattr(_certificate, "_PAIRS", 200)
    z, s = np.random.default_rng(0).normal(size=(400, 12)), np.random.default_rng(1).normal(size=400)
    certificate = quick(z, s)
    assert certificate.n == 200
    assert any("All bounds are on 200 random rows of 400" in note for note in certificate.notes)
    whole, fewer = quick(z[:200], s[:200]), quick(z[:200], s[:200], max_rows=80)  # tile by tile
    assert fewer.hsic == pytest.approx(whole.hsic, rel=1e-9)
    assert fewer.hsic < 0.1
    assert fewer.bound("population").value == pytest.approx(whole.bound("population").value, rel=1e-9)


def test_m_outside_the_directions_of_s_is_refused():
    z, s = sample()
    for m in (0, 1000, 1.5):
        with pytest.raises(ValueError, match="'m' must be a whole number from 1 to"):
            worst_case_head(z, s, dependence=FIXED, m=m)
    head = worst_case_head(z, s, dependence=FIXED, m=1)
    assert str(head).startswith("The worst head of norm one at resolution m = 1")
    assert head.rms < worst_case_head(z, s, dependence=FIXED, m=5).rms
    with pytest.raises(ValueError, match="'z' must have 2 columns"):
        head.predict(s)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1.0,), (2, 3), 1.0, 10), "one entry for each layer"),
        (((), (), 1.0, 10), "one entry for each layer"),
        (((0.0,), (2,), 1.0, 10), "'radii' must be positive"),
        (((1.0,), (0,), 1.0, 10), "'widths' must be positive"),
        (((1.0,), (2,), math.inf, 10), "'bound_x' must be positive"),
        (((1.0,), (2,), 1.0, 1), "'n' must be at least 2"),
    ],
)
def test_network_complexity_refuses_what_is_no_class(arguments, message):
    with pytest.raises(ValueError, match=message):
        network_complexity(*arguments)


def test_homogeneous_networks_have_no_biases():
    with pytest.raises(ValueError, match="'homogeneous' must be False for layers with biases"):
        network_complexity((1.0,), (1,), 1.0, 10, homogeneous=True)
    with pytest.raises(ValueError, match="'confidence_level' must lie"):
        uniform_bound(10, 2.0, 1.0, 1.0, 1.0, 1.0, 0.0)


def test_complexities_fall_with_the_root_of_n_and_grow_with_everything_else():
    base = {"radii": (1.0, 1.0), "widths": (4, 2), "bound_x": 1.0, "n": 100}
    value = network_complexity(**base)
    assert network_complexity(**(base | {"n": 400})) == pytest.approx(value / 2)
    for change in ({"radii": (2.0, 1.0)}, {"widths": (5, 2)}, {"bound_x": 2.0}, {"slope": 2.0}):
        assert network_complexity(**(base | change)) > value
    assert linear_complexity(1.0, 1.0, 2, 400) == pytest.approx(linear_complexity(1.0, 1.0, 2, 100) / 2)


def test_sampled_complexity_repeats_and_uses_its_arguments():
    x = np.random.default_rng(0).normal(size=(20, 2))
    base = {"radii": (1.0, 1.0), "widths": (3, 2), "n_draws": 2, "steps": 5, "random_state": 0}
    value = sampled_complexity(x, **base)
    assert value == sampled_complexity(x, **base) > 0
    for change in (
        *({"n_draws": 3}, {"steps": 9}, {"random_state": 1}, {"radii": (2.0, 1.0)}, {"widths": (4, 2)}),
        {"activation": torch.relu},
    ):
        assert sampled_complexity(x, **(base | change)) != value
