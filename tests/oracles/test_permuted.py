"""Permuted values, by whatever short cut, against the plain value on permuted rows."""

import pytest
import torch

import frhsic.dependence
from frhsic.data import Sensitive
from frhsic.dependence import (
    EIPM,
    GDP,
    HSIC,
    Adversary,
    BinnedMMD,
    Dependence,
    DistanceCovariance,
    KernelHGR,
    MutualInformation,
    RankGap,
    RecoveredVariance,
    ScoreGap,
)
from frhsic.kernels import Delta, Energy, Gaussian, Linear, OnColumns
from frhsic.numerics._lowrank import pivoted_factor
from frhsic.sketching import FeatureHSIC
from tests.covering import cover

N = 60


def generator():
    return torch.Generator().manual_seed(0)


def sample(d, kinds):
    g = generator()
    columns = []
    for kind in kinds:
        column = torch.rand(N, dtype=torch.float64, generator=g)
        columns.append((3 * column).floor() if kind == "categorical" else column)
    s = Sensitive(torch.stack(columns, dim=1), tuple(f"s{j}" for j in range(len(kinds))), tuple(kinds))
    z = torch.rand(N, d, dtype=torch.float64, generator=g)
    z[:, 0] += s.values.sum(dim=1) ** 2
    permutations = torch.stack([torch.randperm(N, generator=g) for _ in range(4)])
    return z, s, permutations


def assert_permuted_is_forward_on_permuted_rows(measure, z, s, permutations):
    expected = torch.stack([measure(z, s[order]) for order in permutations])
    actual = measure.permuted(z, s, permutations)
    assert actual.shape == (len(permutations),)
    assert expected.std() > 0
    torch.testing.assert_close(actual, expected.detach(), rtol=1e-9, atol=1e-9 * expected.abs().max().item())


CONTINUOUS, CATEGORICAL = ("continuous",), ("categorical",)
MIXED = ("continuous", "categorical")
ON_BOTH = OnColumns(Gaussian(1.0), (0,)) * OnColumns(Delta(), (1,))

# d, kinds, kernel on Z, kernel on S, and which of the two Gram matrices is of low rank.
ROUTES = {
    "both of low rank": (1, CONTINUOUS, Gaussian(1.5), Gaussian(1.0), (True, True)),
    "only s of low rank": (8, CONTINUOUS, Gaussian(1.0), Gaussian(1.0), (False, True)),
    "only z of low rank": (2, CONTINUOUS, Linear(), Energy(), (True, False)),
    "neither of low rank": (2, CONTINUOUS, Energy(), Energy(), (False, False)),
    "categories": (8, CATEGORICAL, Gaussian(1.0), Delta(), (False, True)),
    "categories, z of low rank": (1, CATEGORICAL, Gaussian(1.5), Delta(), (True, True)),
    "mixed": (8, MIXED, Gaussian(1.0), ON_BOTH, (False, False)),
    "mixed, z of low rank": (1, MIXED, Gaussian(6.0), ON_BOTH, (True, False)),
    "scale-free and whitened": (
        3,
        CONTINUOUS,
        Gaussian("scale-free", whiten=True),
        Gaussian("scale-free"),
        None,
    ),
}


@pytest.mark.parametrize(
    ("route", "estimator", "normalized", "root"),
    list(cover(ROUTES, ("biased", "unbiased"), (False, True), (False, True))),
)
def test_permuted_hsic_is_hsic_of_permuted_rows(route, estimator, normalized, root):
    d, kinds, kernel_z, kernel_s, low_rank = ROUTES[route]
    z, s, permutations = sample(d, kinds)
    if low_rank is not None:
        found = [pivoted_factor(k.bind(x), x) is not None for k, x in ((kernel_z, z), (kernel_s, s.values))]
        assert found == list(low_rank)
    measure = HSIC(kernel_z, kernel_s, estimator=estimator, normalized=normalized, root=root)
    assert_permuted_is_forward_on_permuted_rows(measure, z, s, permutations)


@pytest.mark.parametrize("kinds", [CONTINUOUS, CATEGORICAL, MIXED, ("continuous", "continuous")])
def test_permuted_hsic_with_default_kernels_is_hsic_of_permuted_rows(kinds):
    z, s, permutations = sample(2, kinds)
    for measure in (HSIC(), HSIC().calibrate(z, s), HSIC(estimator="unbiased", normalized=True)):
        assert_permuted_is_forward_on_permuted_rows(measure, z, s, permutations)


@pytest.mark.parametrize(
    ("kinds", "estimator", "normalized", "root"),
    list(
        cover(
            (CONTINUOUS, CATEGORICAL, ("continuous", "continuous"), CONTINUOUS),
            ("biased", "unbiased"),
            (False, True),
            (False, True),
        )
    ),
)
def test_permuted_distance_covariance_is_that_of_permuted_rows(kinds, estimator, normalized, root):
    z, s, permutations = sample(2, kinds)
    measure = DistanceCovariance(estimator=estimator, normalized=normalized, root=root)
    assert_permuted_is_forward_on_permuted_rows(measure, z, s, permutations)


MEASURES = sorted(
    name
    for name in frhsic.dependence.__all__
    if issubclass(getattr(frhsic.dependence, name), Dependence) and name != "Dependence"
)
# Kinds of S for which each measure is defined.
ANY = (CONTINUOUS, CATEGORICAL, MIXED)
OTHERS = {
    "EIPM": [
        (lambda: EIPM(Gaussian(1.0), 0.1), ANY),
        (lambda: EIPM(Gaussian(1.0), 0.1, root=False, anchors=7), ANY),
    ],
    "GDP": [(lambda: GDP(), ANY), (lambda: GDP(0.1, weighting="grid"), (CONTINUOUS,))],
    "HSIC": [(lambda: HSIC(reference="uniform"), ANY), (lambda: HSIC(block_size=16), ANY)],
    "FeatureHSIC": [
        (lambda: FeatureHSIC(n_features=(32, 9), normalized=True), ANY),
        (lambda: FeatureHSIC(n_features=(32, 9), root=True), ANY),
    ],
    "Adversary": [
        (lambda: Adversary(), (CONTINUOUS,)),
        (lambda: Adversary(n_bins=4), (CONTINUOUS, CATEGORICAL)),
    ],
    "RankGap": [(lambda: RankGap(), ANY)],
    "ScoreGap": [(lambda: ScoreGap(), ANY)],
    "BinnedMMD": [
        (lambda: BinnedMMD(4), (CONTINUOUS, CATEGORICAL)),
        (lambda: BinnedMMD(5, binning="width", kernel_z=Gaussian(1.0)), (CONTINUOUS, CATEGORICAL)),
    ],
    "DistanceCovariance": [
        (lambda: DistanceCovariance(whiten=True, block_size=16), (CONTINUOUS, CATEGORICAL))
    ],
    "KernelHGR": [(lambda: KernelHGR(), ANY)],
    "MutualInformation": [(lambda: MutualInformation(3), ANY)],
    "RecoveredVariance": [(lambda: RecoveredVariance(5), ANY)],
}


@pytest.mark.parametrize("name", MEASURES)
def test_permuted_is_forward_on_permuted_rows_for_every_measure(name):
    for make, defined_for in OTHERS[name]:
        for kinds in defined_for:
            z, s, permutations = sample(2, kinds)
            calibrated = make().calibrate(z, s, generator())
            assert_permuted_is_forward_on_permuted_rows(calibrated, z, s, permutations)
            if name != "Adversary":
                assert_permuted_is_forward_on_permuted_rows(make(), z, s, permutations)


def test_many_permutations_in_several_chunks_give_the_same_values(monkeypatch):
    z, s, permutations = sample(8, CONTINUOUS)
    for estimator in ("biased", "unbiased"):
        measure = HSIC(Gaussian(1.0), Gaussian(1.0), estimator=estimator)
        whole = measure.permuted(z, s, permutations)
        with monkeypatch.context() as patch:
            patch.setattr("frhsic.numerics._permutations._CHUNK", 2_000)
            patch.setattr("frhsic.numerics._permutations.WHOLE", 25)
            torch.testing.assert_close(measure.permuted(z, s, permutations), whole, rtol=1e-9, atol=1e-14)


def weights_of(s):
    return torch.rand(N, dtype=torch.float64, generator=generator()) + 0.1 + s.values[:, 0].square()


def assert_weights_travel_with_s(measure, z, s, permutations):
    w = weights_of(s)
    expected = torch.stack([measure(z, s[order], w[order]) for order in permutations]).detach()
    actual = measure.permuted(z, s, permutations, w)
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-9 * expected.abs().max().item())
    # Any factor will do; weights that stayed with z, or none, would give other values.
    torch.testing.assert_close(measure.permuted(z, s, permutations, 3.0 * w), actual)
    for other in (
        measure.permuted(z, s, permutations),
        torch.stack([measure(z, s[order], w) for order in permutations]).detach(),
    ):
        assert not torch.allclose(other, actual, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize(("route", "normalized", "root"), list(cover(ROUTES, (False, True), (False, True))))
def test_weights_travel_with_the_rows_of_s(route, normalized, root):
    d, kinds, kernel_z, kernel_s, _ = ROUTES[route]
    z, s, permutations = sample(d, kinds)
    measure = HSIC(kernel_z, kernel_s, normalized=normalized, root=root)
    assert_weights_travel_with_s(measure, z, s, permutations)
    assert_weights_travel_with_s(measure.calibrate(z, s, freeze=True), z, s, permutations)


@pytest.mark.parametrize("name", MEASURES)
def test_weights_travel_with_the_rows_of_s_for_every_measure(name):
    for make, defined_for in OTHERS[name]:
        for kinds in defined_for:
            z, s, permutations = sample(2, kinds)
            if name == "MutualInformation":
                with pytest.raises(ValueError, match=r"^'weights' must be None for MutualInformation"):
                    make().permuted(z, s, permutations, weights_of(s))
                continue
            assert_weights_travel_with_s(make().calibrate(z, s, generator()), z, s, permutations)


def test_equal_weights_are_none_and_rows_of_no_weight_are_left_out():
    z, s, permutations = sample(2, CONTINUOUS)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0))
    plain = measure.permuted(z, s, permutations)
    torch.testing.assert_close(measure.permuted(z, s, permutations, torch.full((N,), 0.2)), plain)
    w = weights_of(s)
    w[N // 2 :] = 0.0
    half = torch.arange(N // 2)
    orders = torch.stack([torch.randperm(N // 2, generator=generator())])
    expected = measure.permuted(z[half], s[half], orders, w[half])
    torch.testing.assert_close(measure.permuted(z, s, orders, w), expected)
    with pytest.raises(
        ValueError, match=r"^'permutations' must be \(B, n\).*rows of no weight left out\. Pass"
    ):
        measure.permuted(z, s, permutations, w)


def test_the_unbiased_form_refuses_weights_when_permuted_too():
    z, s, permutations = sample(2, CONTINUOUS)
    with pytest.raises(ValueError, match=r"^'weights' must be None for estimator='unbiased'"):
        HSIC(estimator="unbiased").permuted(z, s, permutations, weights_of(s))


@pytest.mark.parametrize("kernel", [Linear() * Gaussian(1.0), Gaussian(1.0) * Energy()])
def test_weights_travel_under_a_product_of_kernels_with_an_origin(kernel):
    z, s, permutations = sample(2, CONTINUOUS)
    assert_weights_travel_with_s(HSIC(kernel, Gaussian(1.0)), z + 1.0, s, permutations)


@pytest.mark.parametrize(
    "kernel_s", [Gaussian("scale-free"), Gaussian(1.0, whiten=True), Energy(whiten=True)]
)
def test_a_rule_on_s_is_resolved_with_the_weights(kernel_s):
    z, s, permutations = sample(2, ("continuous", "continuous"))
    assert_weights_travel_with_s(HSIC(Gaussian(1.0), kernel_s), z, s, permutations)
