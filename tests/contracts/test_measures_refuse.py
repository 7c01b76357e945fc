"""What measures do with inputs that did not come through the door, or that lie at the edge of the numbers."""

import math

import numpy as np
import pytest
import torch

from frhsic import (
    EIPM,
    GDP,
    HSIC,
    DistanceCovariance,
    KernelHGR,
    Sensitive,
)
from frhsic import dependence as face
from frhsic.data import to_sensitive
from frhsic.dependence import Adversary, BinnedMMD, Dependence
from frhsic.kernels import Gaussian, Linear

MEASURES = [
    name for name in face.__all__ if issubclass(getattr(face, name), Dependence) and name != "Dependence"
]

D = torch.float64


def sample(n=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(n, generator=generator, dtype=D)
    z = torch.randn(n, 3, generator=generator, dtype=D) + 2 * (s[:, None] - 0.5) ** 2
    return z, s


@pytest.mark.parametrize("spoilt", ["z", "s"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "measure",
    [
        HSIC(normalized=True),
        HSIC(estimator="unbiased", normalized=True),
        HSIC(normalized=True, block_size=64),
        DistanceCovariance(normalized=True),
        EIPM(),
        GDP(),
        BinnedMMD(),
        KernelHGR(),
    ],
    ids=lambda measure: type(measure).__name__,
)
def test_what_is_not_finite_never_becomes_a_number(measure, value, spoilt):
    z, s = sample()
    (z if spoilt == "z" else s)[3] = value
    try:
        result = measure(z, s)
    except (ValueError, torch.linalg.LinAlgError):
        return
    assert not torch.isfinite(result)


def test_gdp_of_many_rows_says_that_s_is_not_finite():
    s = torch.rand(5_000, dtype=D, generator=torch.Generator().manual_seed(0))
    s[7] = math.nan
    with pytest.raises(ValueError, match=r"^'s' must be finite\. Got .* Drop those rows"):
        GDP()(s, s)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("z", (np.zeros(9), torch.zeros(9))),
        ("s", (torch.zeros(9), np.zeros(9))),
        ("s", (torch.zeros(9), {"age": 1})),
        ("weights", (torch.zeros(9), torch.zeros(9), [1.0] * 9)),
    ],
)
def test_what_is_no_tensor_is_refused_with_the_way_to_convert_it(name, arguments):
    with pytest.raises(TypeError, match=rf"^'{name}' must be a tensor.* Got .* Convert .* frhsic\.data\.to_"):
        HSIC()(*arguments)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_weights_that_are_no_law_are_refused(bad):
    z, s = sample()
    w = torch.ones(300, dtype=D)
    w[4] = bad
    for weights in (w, torch.zeros(300, dtype=D)):
        with pytest.raises(
            ValueError, match=r"^'weights' must be non-negative with a positive finite sum\. Got"
        ):
            HSIC()(z, s, weights)


@pytest.mark.parametrize(
    "measure", [HSIC(), HSIC(reference="uniform"), EIPM(), GDP(), BinnedMMD(), KernelHGR()], ids=repr
)
def test_rows_of_weight_zero_are_not_there(measure):
    z, s = sample()
    w = torch.ones(300, dtype=D)
    w[::3] = 0.0
    z[::3] *= 50.0
    s[::3] += 9.0
    kept = w > 0
    torch.testing.assert_close(measure(z, s, w), measure(z[kept], s[kept]), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "measure", [HSIC(reference="uniform"), HSIC(Gaussian("scale-free")), EIPM(), GDP()], ids=repr
)
def test_a_measure_calibrated_with_weights_gives_the_same_value_there(measure):
    z, s = sample()
    w = torch.exp(3 * s)
    calibrated = measure.calibrate(z, s, weights=w)
    torch.testing.assert_close(calibrated(z, s, w), measure(z, s, w), rtol=1e-12, atol=0)


def test_a_frozen_measure_is_one_fixed_kernel():
    z, s = sample()
    free = HSIC(Gaussian("scale-free", whiten=True))
    frozen = free.calibrate(z, s, freeze=True)
    torch.testing.assert_close(frozen(z, s), free(z, s), rtol=1e-10, atol=0)
    assert frozen(3 * z, s) != pytest.approx(frozen(z, s).item(), rel=1e-3)


def test_a_measure_calibrated_on_a_stack_refuses_another_stack():
    z, s = sample()
    measure = HSIC().calibrate(torch.stack([z, 2 * z]), s)
    with pytest.raises(
        ValueError, match=r"^'bandwidth' must be a number, or one for each model .* Got \(2,\)"
    ):
        measure(z, s)


@pytest.mark.parametrize("scale", [1.0, 0.1, 0.01])
def test_roots_of_small_values_in_float32_are_those_of_float64(scale):
    z, s = sample()
    z = scale * (0.01 * z + 0.02 * s[:, None])
    measure = HSIC(Linear(), root=True)
    assert measure(z.float(), s.float()).item() == pytest.approx(measure(z, s).item(), rel=1e-3)


@pytest.mark.parametrize("block_size", [None, 64])
def test_far_clusters_in_float32_stay_within_the_bounds_of_the_kernel(block_size):
    z, s = sample()
    z[:150] += 1e4
    value = HSIC(Gaussian(1.0), Gaussian(0.3), block_size=block_size)(z.float(), s.float())
    assert 0 <= value <= 0.25


def test_a_row_far_from_all_others_keeps_its_own_conditional_mean():
    s = torch.cat((torch.linspace(0, 0.05, 299, dtype=D), torch.ones(1, dtype=D)))
    f = torch.where(s < 0.5, 0.0, 1.0)
    exact = GDP(0.01, weighting="grid")(f, s)
    assert exact > 0.4
    assert GDP(0.01, weighting="grid")(f.float(), s.float()).item() == pytest.approx(exact.item(), rel=1e-4)


def test_gdp_by_age_and_sex_of_many_rows_is_the_exact_sum():
    generator = torch.Generator().manual_seed(3)
    age = torch.randint(17, 90, (6_000,), generator=generator).to(D)
    sex = torch.randint(0, 2, (6_000,), generator=generator).to(D)
    f = torch.rand(6_000, generator=generator, dtype=D) + 0.01 * age * sex
    s = Sensitive(torch.stack((age, sex), dim=1), ("age", "sex"), ("continuous", "categorical"))
    h, total = 0.1 * 73, 0.0
    for a, b in torch.stack((age, sex), dim=1).unique(dim=0):
        v = torch.exp(-((age - a) ** 2) / (2 * h * h)) * (sex == b)
        total += float(((age == a) & (sex == b)).sum()) * abs(float((v @ f) / v.sum() - f.mean()))
    assert GDP(0.1, range_s=73.0)(f, s).item() == pytest.approx(total / 6_000, rel=1e-9)


def test_levels_not_seen_in_calibration_have_bins_of_their_own():
    codes = to_sensitive({"group": list("abcde") * 20})
    z = codes.values.clone() + torch.randn(100, 1, dtype=D, generator=torch.Generator().manual_seed(0))
    few = codes[codes.values[:, 0] < 3]
    calibrated = BinnedMMD().calibrate(z[codes.values[:, 0] < 3], few)
    torch.testing.assert_close(calibrated(z, codes), BinnedMMD()(z, codes))


def test_an_adversary_does_not_regress_on_the_numbers_of_categories():
    z, _ = sample(100)
    with pytest.raises(ValueError, match=r"^'s' must be continuous .* Got categories\. Pass n_bins"):
        Adversary().calibrate(z, to_sensitive({"group": list("ab") * 50}))


def test_kinds_and_kernels_that_do_not_exist_are_refused():
    with pytest.raises(
        ValueError, match=r"^'kinds' must be 'continuous' or 'categorical'.* Got \['numeric'\]"
    ):
        Sensitive(torch.zeros(5, 1), ("age",), ("numeric",))
    for measure in (HSIC, EIPM, KernelHGR):
        with pytest.raises(
            TypeError, match=r"^'kernel_z' must be a kernel or None\. Got 'gaussian'\. Take one of"
        ):
            measure(kernel_z="gaussian")


def test_whitening_needs_more_rows_than_columns():
    z = torch.randn(30, 29, dtype=D, generator=torch.Generator().manual_seed(0))
    with pytest.raises(
        ValueError, match=r"^'whiten' must have at least d \+ 2 = 31 rows.* Got 30\. Use more rows"
    ):
        HSIC(Gaussian(whiten=True))(z, z[:, 0])


def test_a_column_that_is_constant_up_to_rounding_is_not_whitened_into_noise():
    z, s = sample()
    noise = torch.where(torch.arange(300) % 2 == 0, 0.3, 0.1 + 0.2).to(D)[:, None]
    measure = HSIC(Gaussian(1.0, whiten=True), Gaussian(0.3))
    torch.testing.assert_close(measure(torch.cat((z, noise), dim=1), s), measure(z, s), rtol=1e-6, atol=0)


@pytest.mark.parametrize("permutations", [torch.arange(300), torch.zeros(2, 5, dtype=torch.long)])
def test_permutations_must_have_a_row_for_each_and_a_column_for_each_row(permutations):
    z, s = sample()
    with pytest.raises(ValueError, match=r"^'permutations' must be \(B, n\) for one model"):
        HSIC().permuted(z, s, permutations)


@pytest.mark.parametrize("name", [name for name in MEASURES if name != "Adversary"])
def test_decisions_of_zero_and_one_are_numbers(name):
    _, s = sample()
    measure = getattr(face, name)()
    decision = s > 0.4
    expected = measure(decision.double(), s)
    assert measure(decision, s) == measure(decision.long(), s) == expected


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e-20, 1e20, 1e140])
def test_the_unit_of_s_does_not_matter_at_any_size(scale):
    z, s = sample()
    expected = HSIC()(z, s).item()
    assert HSIC()(z, scale * s).item() == pytest.approx(expected, rel=1e-9)
    assert HSIC().calibrate(z, scale * s)(z, scale * s).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("evaluate", ["gram", "inner", "tiles"])
def test_a_kernel_whose_bandwidth_is_still_a_rule_says_how_to_fix_it(evaluate):
    z, _ = sample(9)
    other = {"gram": (z,), "inner": (torch.zeros(9, 9, dtype=D),), "tiles": ()}[evaluate]
    with pytest.raises(
        ValueError, match=r"^'bandwidth' must be a number .* Got the rule 'median'\. Fix it on data"
    ):
        getattr(Gaussian(), evaluate)(z, *other)
