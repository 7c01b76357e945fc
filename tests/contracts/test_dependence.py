"""What every dependence measure promises, over the whole face of frhsic.dependence."""

import copy
import inspect
import itertools
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import frhsic.dependence
import frhsic.sketching
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
from frhsic.kernels import (
    Delta,
    Energy,
    Gaussian,
    InverseMultiquadric,
    Kernel,
    Laplace,
    Linear,
    OnColumns,
)
from frhsic.sketching import FeatureHSIC
from tests.covering import cover

KERNELS = {
    "gaussian": Gaussian(1.3),
    "laplace": Laplace(1.5),
    "imq": InverseMultiquadric(0.9),
    "linear": Linear(),
    "energy": Energy(),
    "sum": Linear() + 0.5 * Gaussian(1.0),
    "product": OnColumns(Gaussian(1.0), (0,)) * OnColumns(Laplace(2.0), (1,)),
    "scale-free": Gaussian("scale-free"),
    "whiten": InverseMultiquadric(1.2, whiten=True),
}
CONTINUOUS, CATEGORICAL, MIXED = ("continuous",), ("categorical",), ("continuous", "categorical")
PAIR = ("continuous", "continuous")
EVERY_KIND = frozenset({CONTINUOUS, PAIR, CATEGORICAL, MIXED})
NUMBERS = frozenset({CONTINUOUS, PAIR})
ONE_COLUMN = frozenset({CONTINUOUS, CATEGORICAL})


@dataclass(frozen=True)
class Case:
    """A configured measure and what is true of it."""

    make: Callable[[], Dependence]
    kinds: frozenset = EVERY_KIND
    weights: bool = True
    # Integer weights are repeated rows: not where the measure counts rows as such.
    counts: bool = True
    zero_for_constant_s: bool = True
    zero_for_constant_z: bool = True


def hsic_cases():
    cases = {}
    for name, estimator, normalized, root, block_size in cover(
        KERNELS, ("biased", "unbiased"), (False, True), (False, True), (None, 7)
    ):
        words = [name, estimator, "normalized" * normalized, "root" * root, "blocked" * bool(block_size)]
        cases["HSIC " + " ".join(filter(None, words))] = Case(
            # Default arguments fix the values of this turn of the loop.
            lambda k=KERNELS[name], e=estimator, m=normalized, r=root, b=block_size: HSIC(
                k, Gaussian(0.7), estimator=e, normalized=m, root=r, block_size=b
            ),
            weights=estimator == "biased",
        )
    return cases


CASES = {
    **hsic_cases(),
    "HSIC median": Case(lambda: HSIC(), counts=False),
    "HSIC median whitened": Case(
        lambda: HSIC(Gaussian("median", whiten=True), normalized=True), counts=False
    ),
    "HSIC uniform": Case(lambda: HSIC(Gaussian(1.0), Gaussian(1.0), reference="uniform"), counts=False),
    **{
        f"FeatureHSIC {name} {estimator} {normalized=} {root=}": Case(
            lambda k=KERNELS[name], e=estimator, m=normalized, r=root: FeatureHSIC(
                k, n_features=(16, 17), estimator=e, normalized=m, root=r
            ).calibrate(*sample(99)[:2], side="s"),
            # Debiased by the mean at independence of rows as they are.
            counts=estimator == "biased",
            kinds=frozenset({CONTINUOUS}),
        )
        for name, estimator, normalized, root in (
            ("gaussian", "biased", False, False),
            ("scale-free", "biased", True, True),
            ("laplace", "unbiased", False, True),
            ("sum", "unbiased", True, False),
        )
    },
    "FeatureHSIC median": Case(lambda: FeatureHSIC(n_features=(16, 17)), counts=False),
    **{
        f"DistanceCovariance {estimator} {normalized=} {root=} {whiten=} {block=}": Case(
            lambda e=estimator, m=normalized, r=root, w=whiten, b=block: DistanceCovariance(
                estimator=e, normalized=m, root=r, whiten=w, block_size=b
            ),
            kinds=EVERY_KIND - {MIXED},
            weights=estimator == "biased",
        )
        for estimator, normalized, root, whiten, block in (
            ("biased", False, False, False, None),
            ("biased", True, True, False, None),
            ("biased", False, True, True, 7),
            ("unbiased", False, False, False, None),
            ("unbiased", True, False, True, 7),
        )
    },
    # Each row is left out of its own neighbourhood, a copy of it is not; and what is left is not the whole
    # sample even when S is constant.
    "EIPM": Case(lambda: EIPM(Gaussian(1.0), 0.3), counts=False, zero_for_constant_s=False),
    "EIPM squared": Case(
        lambda: EIPM(Gaussian("scale-free"), 0.3, root=False), counts=False, zero_for_constant_s=False
    ),
    "EIPM anchors": Case(
        lambda: EIPM(Gaussian(1.0), 0.3, anchors=5), counts=False, zero_for_constant_s=False, kinds=ONE_COLUMN
    ),
    "EIPM median": Case(lambda: EIPM(), counts=False, zero_for_constant_s=False),
    "EIPM linear": Case(lambda: EIPM(Linear(), 0.3), counts=False, zero_for_constant_s=False),
    "GDP": Case(lambda: GDP(0.2)),
    "GDP grid": Case(lambda: GDP(0.2, weighting="grid", n_grid=11), kinds=frozenset({CONTINUOUS})),
    "GDP range": Case(lambda: GDP(0.1, range_s=2.0)),
    "ScoreGap": Case(lambda: ScoreGap()),
    "RankGap": Case(lambda: RankGap()),
    "BinnedMMD": Case(lambda: BinnedMMD(3), kinds=ONE_COLUMN),
    "BinnedMMD gaussian": Case(
        lambda: BinnedMMD(3, binning="width", kernel_z=Gaussian(1.0)), kinds=ONE_COLUMN
    ),
    "BinnedMMD median": Case(lambda: BinnedMMD(4, kernel_z=Gaussian()), kinds=ONE_COLUMN, counts=False),
    "KernelHGR": Case(lambda: KernelHGR(0.1, 0.1, kernel_z=Gaussian(1.0), kernel_s=Gaussian(1.0))),
    "KernelHGR median": Case(lambda: KernelHGR(), counts=False),
    "KernelHGR linear": Case(lambda: KernelHGR(0.1, 0.2, kernel_z=Linear(), kernel_s=Linear())),
    "MutualInformation": Case(lambda: MutualInformation(3), weights=False),
    # A row is left out, a copy of it is not.
    "RecoveredVariance": Case(lambda: RecoveredVariance(3, ridge=0.1), counts=False),
    "RecoveredVariance columns": Case(lambda: RecoveredVariance(0, degree=2, ridge=0.5), counts=False),
    "Adversary": Case(
        lambda: Adversary((4,)), kinds=NUMBERS, zero_for_constant_s=False, zero_for_constant_z=False
    ),
    "Adversary deep": Case(
        lambda: Adversary((4, 3)), kinds=NUMBERS, zero_for_constant_s=False, zero_for_constant_z=False
    ),
    "Adversary bins": Case(
        lambda: Adversary((4,), n_bins=3),
        kinds=ONE_COLUMN,
        zero_for_constant_s=False,
        zero_for_constant_z=False,
    ),
}
# What is called as a measure: a sketch, which takes rows in parts, has contracts of its own.
MEASURES = {
    name: getattr(home, name)
    for home in (frhsic.dependence, frhsic.sketching)
    for name in home.__all__
    if issubclass(getattr(home, name), Dependence) and name != "Dependence"
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sample(n=13, d=2, kinds=CONTINUOUS, lead=(), seed=0):
    g = generator(seed)
    columns = []
    for kind in kinds:
        column = torch.randn(n, dtype=torch.float64, generator=g)
        # Every level is there several times.
        columns.append(
            (torch.arange(n) % 3)[torch.randperm(n, generator=g)].to(column)
            if kind == "categorical"
            else column
        )
    s = Sensitive(torch.stack(columns, dim=1), tuple(f"s{j}" for j in range(len(kinds))), kinds)
    z = torch.randn(*lead, n, d, dtype=torch.float64, generator=g)
    z[..., 0] += s.values.sum(dim=1)
    w = 0.2 + torch.rand(n, dtype=torch.float64, generator=g)
    return z, s, w


def ready(measure, z, s):
    """Return the measure, or the adversary with its layers."""
    return measure.calibrate(z, s, generator(7)) if isinstance(measure, Adversary) else measure


def close(actual, expected, tolerance=1e-10):
    """Agreement of values; a root magnifies the rounding error near zero."""
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def test_every_measure_on_the_face_has_cases():
    covered = {type(case.make()).__name__ for case in CASES.values()}
    assert covered == set(MEASURES)
    assert inspect.isabstract(Dependence)


@pytest.mark.parametrize("name", CASES)
def test_a_stack_of_models_is_evaluated_as_one_by_one(name):
    case = CASES[name]
    for kinds in case.kinds:
        z, s, w = sample(kinds=kinds, lead=(2, 3))
        for weights in (None, w) if case.weights else (None,):
            measure = ready(case.make(), z, s)
            value = measure(z, s, weights)
            assert value.shape == (2, 3)
            for i, j in itertools.product(range(2), range(3)):
                one = measure
                if isinstance(measure, Adversary):
                    one = copy.deepcopy(measure)
                    for own, stacked in zip(one.parameters(), measure.parameters(), strict=True):
                        own.data = stacked.data[i, j]
                single = one(z[i, j], s, weights)
                assert single.shape == ()
                close(value[i, j], single)


# The product kernel looks at two columns.
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("HSIC product")])
def test_one_dimensional_arguments_are_single_columns(name):
    case = CASES[name]
    z, s, _ = sample(d=1)
    measure = ready(case.make(), z, s)
    expected = measure(z, s)
    column = s.values[:, 0]
    for x, y in ((z[:, 0], s), (z, column), (z[:, 0], column), (z, column[:, None])):
        close(measure(x, y), expected)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].weights])
def test_weights_count_by_their_shares_only(name):
    case = CASES[name]
    for kinds in case.kinds:
        z, s, w = sample(kinds=kinds)
        measure = ready(case.make(), z, s)
        close(measure(z, s, torch.full((13,), 3.7, dtype=torch.float64)), measure(z, s))
        close(measure(z, s, 1e-3 * w), measure(z, s, w))
        close(measure(z, s, 1e6 * w), measure(z, s, w))
        assert abs(measure(z, s, w) - measure(z, s)) > 1e-9


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].weights and CASES[name].counts])
def test_integer_weights_are_repeated_rows(name):
    case = CASES[name]
    for kinds in case.kinds:
        z, s, _ = sample(kinds=kinds)
        counts = torch.tensor([1, 3, 2, 1, 1, 2, 1, 4, 1, 1, 2, 1, 1])
        measure = case.make().calibrate(z, s, generator(7))
        again = torch.repeat_interleave(torch.arange(13), counts)
        close(measure(z, s, counts.double()), measure(z[again], s[again]))


@pytest.mark.parametrize("name", ["EIPM", "EIPM squared"])
def test_leaving_the_row_out_makes_a_weight_of_two_differ_from_two_rows(name):
    z, s, _ = sample()
    measure = CASES[name].make().calibrate(z, s)
    again = torch.repeat_interleave(torch.arange(13), 2)
    assert abs(measure(z, s) - measure(z[again], s[again])) > 1e-3


@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].weights])
def test_measures_without_a_weighted_form_refuse_weights(name):
    z, s, w = sample()
    with pytest.raises(ValueError, match=r"^'weights' must be None for .*Got weights\. Use "):
        CASES[name].make()(z, s, w)


@pytest.mark.parametrize(
    "name", [name for name in CASES if CASES[name].make().differentiable and "median" not in name]
)
def test_gradients_are_those_of_the_value(name):
    case = CASES[name]
    n = 9 if "HSIC" in name else 11
    z, s, w = sample(n, seed=1)
    measure = ready(case.make(), z, s)
    z.requires_grad_()
    for weights in (None, w) if case.weights else (None,):
        assert torch.autograd.gradcheck(
            lambda x, v=weights: measure(x, s, v), z, fast_mode=name.endswith("blocked")
        )


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in CASES
        if CASES[name].make().differentiable and "median" not in name and "root" not in name
    ],
)
def test_gradients_of_a_stack_are_those_of_the_value(name):
    case = CASES[name]
    z, s, w = sample(9, lead=(2,), seed=2)
    measure = ready(case.make(), z, s)
    z.requires_grad_()
    weights = w if case.weights else None
    assert torch.autograd.gradcheck(lambda x: measure(x, s, weights), z, fast_mode=True)


@pytest.mark.parametrize("name", ["Adversary", "Adversary deep", "Adversary bins"])
def test_gradients_reach_the_parameters_of_the_adversary(name):
    z, s, w = sample(9)
    measure = ready(CASES[name].make(), z, s)
    names = [key for key, _ in measure.named_parameters()]
    values = tuple(p.detach().clone().requires_grad_() for p in measure.parameters())

    def value(*parameters):
        return torch.func.functional_call(measure, dict(zip(names, parameters, strict=True)), (z, s, w))

    assert len(values) == 2 * (1 + len(measure.hidden))
    assert torch.autograd.gradcheck(value, values)


@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize(
    ("estimator", "weighted"), [("biased", False), ("biased", True), ("unbiased", False)]
)
def test_second_derivatives_of_gaussian_hsic_are_those_of_the_value(estimator, weighted, lead):
    z, s, w = sample(7, lead=lead)
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), estimator=estimator)
    z.requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: measure(x, s, w if weighted else None), z)


@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize(
    "kernel", [Gaussian("scale-free"), Gaussian("scale-free", whiten=True), Linear()], ids=str
)
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_derivatives_of_normalised_hsic_are_those_of_the_plain_ratio(estimator, kernel, lead):
    z, s, _ = sample(9, lead=lead)
    z.requires_grad_()
    measure = HSIC(kernel, Gaussian(1.0), estimator=estimator, normalized=True)
    L = Gaussian(1.0).gram(s.values, s.values)
    values = measure(z, s), measure._ratio(z, L, None)
    torch.testing.assert_close(*values, rtol=1e-9, atol=1e-12)
    first = [torch.autograd.grad(value.sum(), z, create_graph=True)[0] for value in values]
    torch.testing.assert_close(*first, rtol=1e-7, atol=1e-10)
    (quick,) = torch.autograd.grad(measure(z, s).sum(), z)  # without a graph: the fused gradient
    torch.testing.assert_close(quick, first[1], rtol=1e-7, atol=1e-10)
    second = [torch.autograd.grad(gradient.square().sum(), z)[0] for gradient in first]
    torch.testing.assert_close(*second, rtol=1e-6, atol=1e-9)


FUNCTIONAL = {
    "fixed": HSIC(Gaussian(1.0), Gaussian(1.0)),
    "fixed unbiased": HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased"),
    "fixed root": HSIC(Gaussian(1.0), Gaussian(1.0), root=True),
    "fixed normalized": HSIC(Gaussian(1.0), Gaussian(1.0), normalized=True),
    "scale-free": HSIC(Gaussian("scale-free"), Gaussian(1.0)),
    "scale-free normalized": HSIC(Gaussian("scale-free"), Gaussian(1.0), normalized=True),
}


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional_transforms_agree_with_autograd(name):
    measure = FUNCTIONAL[name]
    z, s, w = sample(12, lead=(4,))
    z.requires_grad_()
    values = measure(z, s)
    (gradients,) = torch.autograd.grad(values.sum(), z)
    z = z.detach()

    def f(x):
        return measure(x, s)

    close(torch.func.vmap(f)(z), values.detach())
    close(torch.func.grad(f)(z[0]), gradients[0])
    close(torch.func.vmap(torch.func.grad(f))(z), gradients)
    close(torch.func.jacrev(f)(z[1]), gradients[1])
    jacobian = torch.func.jacrev(f)(z)  # (4, 4, n, d): each model sees its own rows only
    close(jacobian, torch.diag_embed(gradients.permute(1, 2, 0)).permute(2, 3, 0, 1))
    if measure.estimator == "biased":
        close(torch.func.vmap(lambda x: measure(x, s, w))(z), measure(z, s, w))


@pytest.mark.parametrize("name", CASES)
def test_calibrated_measures_do_not_depend_on_the_order_of_rows(name):
    case = CASES[name]
    for kinds in case.kinds:
        if "anchors" in name and kinds != CONTINUOUS:
            continue  # anchors among equal values are chosen in the order of rows, as documented
        z, s, w = sample(kinds=kinds)
        measure = case.make().calibrate(z, s, generator(7))
        order = torch.randperm(13, generator=generator(3))
        for weights in (None, w) if case.weights else (None,):
            permuted = None if weights is None else weights[order]
            close(measure(z[order], s[order], permuted), measure(z, s, weights), 1e-9)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].zero_for_constant_s])
def test_a_constant_s_has_nothing_to_tell(name):
    case = CASES[name]
    z, _, w = sample()
    for level in (0.0, 0.1, -1e4 / 3):
        s = torch.full((13,), level, dtype=torch.float64)
        for weights in (None, w) if case.weights else (None,):
            assert case.make()(z, s, weights).item() == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].zero_for_constant_z])
def test_a_constant_z_has_nothing_to_tell(name):
    case = CASES[name]
    _, s, w = sample()
    for level in (0.0, 0.1, -1e4 / 3):
        z = torch.full((13, 2), level, dtype=torch.float64, requires_grad=True)
        for weights in (None, w) if case.weights else (None,):
            value = case.make()(z, s, weights)
            assert value.item() == pytest.approx(0, abs=1e-7)
            if value.requires_grad:
                (gradient,) = torch.autograd.grad(value, z)
                assert torch.isfinite(gradient).all()


def degenerate(n, g):
    """Yield samples of every awkward shape."""
    yield torch.randn(n, 2, dtype=torch.float64, generator=g)
    yield torch.randint(0, 2, (n, 2), generator=g).double()
    yield torch.eye(n, 2, dtype=torch.float64)
    yield torch.zeros(n, 2, dtype=torch.float64)
    yield 1e4 * torch.randn(n, 2, dtype=torch.float64, generator=g)
    yield 1e-2 * torch.randn(n, 2, dtype=torch.float64, generator=g) + 5.0


@pytest.mark.parametrize("block_size", [None, 3])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "imq", "linear", "energy", "scale-free", "whiten"])
def test_biased_hsic_is_not_negative_and_normalized_at_most_one(kernel, block_size):
    k = KERNELS[kernel]
    for n in (2, 7) if kernel != "whiten" else (7,):  # two rows are too few to whiten
        for z, s in itertools.product(degenerate(n, generator(1)), degenerate(n, generator(2))):
            w = 0.1 + torch.rand(n, dtype=torch.float64, generator=generator(3))
            for weights in (None, w):
                assert HSIC(k, Gaussian(1.0), block_size=block_size)(z, s, weights) >= -1e-14 * (
                    1 + z.square().max()
                )
                normalized = HSIC(k, Gaussian(1.0), normalized=True, block_size=block_size)(z, s, weights)
                assert 0 <= normalized <= 1


@pytest.mark.parametrize("block_size", [None, 100])
def test_normalized_hsic_of_a_shrunken_z_in_float32_is_that_of_float64(block_size):
    s = torch.rand(256, dtype=torch.float64, generator=generator(0))
    z = torch.randn(256, 8, dtype=torch.float64, generator=generator(1))
    z[:, 0] += 2 * s
    z = (0.01 * z).float()
    measure = HSIC(Gaussian(1.0), Gaussian(0.3), normalized=True, block_size=block_size)
    assert measure(z, s).item() == pytest.approx(measure(z.double(), s).item(), rel=0.01)


@pytest.mark.parametrize("block_size", [None, 100])
def test_hsic_of_a_shrunken_z_in_float32_is_that_of_float64(block_size):
    s = torch.rand(256, dtype=torch.float64, generator=generator(0))
    z = torch.randn(256, 8, dtype=torch.float64, generator=generator(1))
    z[:, 0] += 2 * s
    z = (0.001 * z).float()
    measure = HSIC(Gaussian(1.0), Gaussian(0.3), block_size=block_size)
    assert measure(z, s).item() == pytest.approx(measure(z.double(), s).item(), rel=0.01)


@pytest.mark.parametrize("block_size", [None, 3])
def test_normalized_hsic_of_a_collapsed_z_lies_between_zero_and_one(block_size):
    for seed, n, kernel, scale in itertools.product(
        range(10), (3, 5), ("gaussian", "laplace", "imq"), (1.0, 1e-8)
    ):
        z = 1e-8 * torch.randn(n, 2, dtype=torch.float64, generator=generator(seed))
        s = scale * torch.randn(n, dtype=torch.float64, generator=generator(100 + seed))
        w = torch.rand(n, dtype=torch.float64, generator=generator(200 + seed))
        measure = HSIC(KERNELS[kernel], Gaussian(1.0), normalized=True, block_size=block_size)
        for weights in (None, w):
            assert -1e-6 <= measure(z, s, weights).item() <= 1 + 1e-6


@pytest.mark.parametrize(
    ("kernel", "estimator", "block_size", "root"),
    list(cover(KERNELS, ("biased", "unbiased"), (None, 7), (False, True))),
)
def test_normalized_hsic_of_z_with_itself_is_one(kernel, estimator, block_size, root):
    z, _, _ = sample()
    k = KERNELS[kernel]
    measure = HSIC(k, k, estimator=estimator, normalized=True, root=root, block_size=block_size)
    assert measure(z, z).item() == pytest.approx(1, rel=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_calling_twice_gives_the_same_answer(name):
    z, s, _ = sample()
    other, s_other, _ = sample(17, seed=9)
    measure = ready(CASES[name].make(), z, s)
    inputs = z.clone(), s.values.clone()
    first = measure(z, s)
    measure(5.0 * other, s_other)
    measure.calibrate(5.0 * other, s_other, generator())
    assert torch.equal(measure(z, s), first)
    assert torch.equal(z, inputs[0])
    assert torch.equal(s.values, inputs[1])


@pytest.mark.parametrize("name", CASES)
def test_wrong_arguments_are_refused_with_name_and_cure(name):
    z, s, w = sample()
    measure = ready(CASES[name].make(), z, s)
    values = s.values[:, 0]
    with pytest.raises(ValueError, match=r"^'s' must not require gradients in .*Got .*Pass s\.detach\(\)"):
        measure(z, values.clone().requires_grad_())
    with pytest.raises(ValueError, match=r"^'s' must have 13 rows like 'z'\. Got 11\. "):
        measure(z, values[:11])
    with pytest.raises(
        ValueError, match=r"^'z' must have (at least|more than) .*rows.*\. Got 1\. Use a larger"
    ):
        measure(z[:1], values[:1])
    with pytest.raises(ValueError, match=r"^'s' must have 13 rows like 'z'\. Got 11\. "):
        measure.calibrate(z, values[:11])
    with pytest.raises(ValueError, match=r"^'s' must have 13 rows like 'z'\. Got 11\. "):
        measure.permuted(z, values[:11], torch.arange(11)[None])
    if CASES[name].weights:
        with pytest.raises(ValueError, match=r"^'weights' must have shape \(13,\) like .*Got \(12,\)\. "):
            measure(z, s, w[:12])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unbiased_estimators_need_four_rows(n):
    z, s, _ = sample(4)
    for measure in (HSIC(estimator="unbiased"), DistanceCovariance(estimator="unbiased")):
        assert torch.isfinite(measure(z, s))
        with pytest.raises(ValueError, match=rf"^'z' must have at least \d rows .*Got {n}\. Use a larger"):
            measure(z[:n], s.values[:n])
        with pytest.raises(ValueError, match=rf"^'z' must have at least \d rows .*Got {n}\. Use a larger"):
            measure.permuted(z[:n], s.values[:n], torch.arange(n)[None])


def test_mutual_information_needs_more_rows_than_neighbours():
    z, s, _ = sample(6)
    with pytest.raises(ValueError, match=r"^'z' must have more than k = 6 rows\. Got 6\. "):
        MutualInformation(6)(z, s)


def test_distance_covariance_refuses_mixed_kinds():
    z, s, _ = sample(kinds=MIXED)
    with pytest.raises(
        ValueError, match=r"^'s' must have columns of one kind .*Got continuous and categorical.*HSIC"
    ):
        DistanceCovariance()(z, s)


@pytest.mark.parametrize("measure", [BinnedMMD(3), GDP(0.1, weighting="grid"), Adversary(n_bins=3)])
def test_measures_on_one_column_refuse_two(measure):
    z, s, _ = sample(kinds=PAIR)
    with pytest.raises(ValueError, match=r"^'s' must .*one .*column.*Got "):
        ready(measure, z, s)(z, s)


def test_adversary_without_layers_is_refused():
    z, s, _ = sample()
    with pytest.raises(
        ValueError, match=r"^'Adversary' must have layers .*Got none\. Make them with adversary\.calibrate"
    ):
        Adversary()(z, s)


WRONG = {
    "HSIC": [
        {"estimator": "exact"},
        {"reference": "normal"},
        {"block_size": 0},
        {"estimator": "unbiased", "reference": "uniform"},
    ],
    "FeatureHSIC": [
        {"estimator": "exact"},
        {"n_features": (1, 9)},
        {"n_features": 9},
        {"random_state": -1},
        {"random_state": None},
        {"kernel_z": Delta()},
    ],
    "EIPM": [{"anchors": 0}, {"bandwidth_s": 0.0}, {"bandwidth_s": math.nan}, {"range_s": 0.0}],
    "GDP": [
        {"bandwidth_s": -1.0},
        {"range_s": -1.0, "bandwidth_s": 0.1},
        {"range_s": 1.0, "bandwidth_s": None},
        {"weighting": "uniform"},
        {"n_grid": 1},
    ],
    "RankGap": [],
    "ScoreGap": [{"cutoff": "most"}],
    "Adversary": [{"n_bins": 1}],
    "BinnedMMD": [{"n_bins": 1}, {"binning": "kmeans"}],
    "DistanceCovariance": [{"estimator": "exact"}, {"block_size": -1}],
    "KernelHGR": [{"ridge_z": 0.0}, {"ridge_s": -1.0}, {"ridge_z": math.inf}],
    "MutualInformation": [{"k": 0}],
    "RecoveredVariance": [
        {"n_features": -1},
        {"n_features": 1.5},
        {"degree": 0},
        {"ridge": 0.0},
        {"seed": -1},
        {"exact_gradient": "no"},
    ],
}


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_wrong_hyperparameters_are_refused_by_the_constructor(name):
    for arguments in WRONG[name]:
        with pytest.raises(ValueError, match=rf"^'({'|'.join(arguments)})' must be .*Got "):
            MEASURES[name](**arguments)


@pytest.mark.parametrize(
    ("kernel", "estimator", "normalized"),
    list(cover(("gaussian", "energy", "sum", "scale-free", "whiten"), ("biased", "unbiased"), (False, True))),
)
def test_block_size_does_not_change_value_or_gradient(kernel, estimator, normalized):
    z, s, w = sample(17, lead=(2,))
    z.requires_grad_()
    weights = w if estimator == "biased" else None
    arguments = {"estimator": estimator, "normalized": normalized}
    whole = HSIC(KERNELS[kernel], Gaussian(0.7), block_size=17, **arguments)(z, s, weights)
    (gradient,) = torch.autograd.grad(whole.sum(), z)
    for block_size in (2, 7, 16, 18, 1_000):
        tiled = HSIC(KERNELS[kernel], Gaussian(0.7), block_size=block_size, **arguments)(z, s, weights)
        close(tiled, whole)
        close(torch.autograd.grad(tiled.sum(), z)[0], gradient)


@pytest.mark.parametrize("name", CASES)
def test_calibrate_leaves_the_old_measure_alone(name):
    z, s, _ = sample()
    measure = CASES[name].make()
    before = repr(vars(measure))
    calibrated = measure.calibrate(z, s, generator())
    assert repr(vars(measure)) == before
    assert type(calibrated) is type(measure)
    # A measure with nothing to fix may return itself; one with a rule or a range may not.
    if not isinstance(measure, (DistanceCovariance, MutualInformation)):
        assert calibrated is not measure
    # Calibrating again, on other rows, leaves what is fixed fixed.
    if not isinstance(measure, (EIPM, GDP, BinnedMMD, Adversary)) and "uniform" not in name:
        close(calibrated.calibrate(9.0 * z, s, generator())(z, s), calibrated(z, s))


@pytest.mark.parametrize("measure", [HSIC(), EIPM(), KernelHGR(), BinnedMMD(kernel_z=Gaussian())])
def test_a_calibrated_measure_keeps_its_scale_on_other_rows(measure):
    z, s, _ = sample()
    calibrated = measure.calibrate(z, s)
    close(calibrated(z, s), measure(z, s))
    assert abs(calibrated(3.0 * z, s) - measure(3.0 * z, s)) > 1e-6


def test_a_hook_on_the_calibrated_measure_is_not_on_the_old_one():
    z, s, _ = sample()
    calls = []
    measure = HSIC()
    measure.calibrate(z, s).register_forward_hook(lambda *_: calls.append(1))
    measure(z, s)
    assert not calls


@pytest.mark.parametrize("name", CASES)
def test_copies_pickles_and_state_dicts_give_the_same_value(name):
    z, s, _ = sample()
    for measure in (ready(CASES[name].make(), z, s), CASES[name].make().calibrate(z, s, generator(7))):
        expected = measure(z, s)
        assert torch.equal(copy.deepcopy(measure)(z, s), expected)
        assert torch.equal(pickle.loads(pickle.dumps(measure))(z, s), expected)
        twin = CASES[name].make().calibrate(z, s, generator(8))
        if isinstance(measure, Adversary):
            assert not torch.equal(twin(z, s), expected)
        loaded = twin.load_state_dict(measure.state_dict())
        assert not loaded.missing_keys
        assert not loaded.unexpected_keys
        if isinstance(measure, Adversary):
            assert torch.equal(twin(z, s), expected)
        else:
            assert list(measure.parameters()) == []


class Largest(TorchDispatchMode):
    """Remember the size of the largest tensor that is made."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(one, torch.Tensor):
                self.size = max(self.size, one.numel())
        return result


def largest_tensor(measure, z, s):
    with Largest() as largest:
        measure(z, s)
    return largest.size


def test_distance_covariance_of_a_score_forms_no_pairs():
    n = 20_000
    s = torch.randn(n, dtype=torch.float64, generator=generator())
    z = s.square() + torch.randn(n, dtype=torch.float64, generator=generator(1))
    assert largest_tensor(DistanceCovariance(normalized=True), z, s) <= 4 * (n + 1)
    few = z[:600].clone().requires_grad_()
    with_gradient = DistanceCovariance()(few, s[:600])
    with_gradient.backward()
    assert few.grad.abs().max() > 0
    close(with_gradient.detach(), DistanceCovariance()(z[:600], s[:600]))
    with pytest.raises(ValueError, match=r"^'weights' must be None for estimator='unbiased'"):
        DistanceCovariance(estimator="unbiased")(z, s, s.exp())


# For each parameter: the common arguments, and two values that must make a difference.
ARGUMENTS = {
    "HSIC": {
        "kernel_z": ({}, Gaussian(1.0), Laplace(1.0)),
        "kernel_s": ({}, Gaussian(1.0), Laplace(1.0)),
        "estimator": ({}, "biased", "unbiased"),
        "normalized": ({}, False, True),
        "root": ({}, False, True),
        "reference": ({}, "product", "uniform"),
        "block_size": ({"kernel_z": Gaussian(1.0), "kernel_s": Gaussian(1.0)}, 13, 5),
    },
    "FeatureHSIC": {
        "kernel_z": ({}, Gaussian(1.0), Laplace(1.0)),
        "kernel_s": ({}, Gaussian(1.0), Laplace(1.0)),
        "n_features": ({}, (256, 64), (16, 9)),
        "random_state": ({}, 0, 1),
        "estimator": ({}, "biased", "unbiased"),
        "normalized": ({}, False, True),
        "root": ({}, False, True),
    },
    "DistanceCovariance": {
        "normalized": ({}, False, True),
        "estimator": ({}, "biased", "unbiased"),
        "root": ({}, False, True),
        "whiten": ({}, False, True),
        "block_size": ({}, 13, 5),
    },
    "EIPM": {
        "kernel_z": ({}, Gaussian(1.0), Laplace(1.0)),
        "bandwidth_s": ({}, 0.5, 0.2),
        "anchors": ({}, None, 4),
        "root": ({}, True, False),
        "range_s": ({}, None, 0.5),
    },
    "GDP": {
        "bandwidth_s": ({}, 0.1, 0.3),
        "weighting": ({"bandwidth_s": 0.1}, "population", "grid"),
        "n_grid": ({"bandwidth_s": 0.1, "weighting": "grid"}, 50, 7),
        "range_s": ({"bandwidth_s": 0.1}, None, 0.5),
    },
    "RankGap": {},
    "ScoreGap": {"cutoff": ({}, 0.0, "worst")},
    "BinnedMMD": {
        "n_bins": ({}, 3, 4),
        "binning": ({"n_bins": 3}, "quantile", "width"),
        "kernel_z": ({"n_bins": 3}, Linear(), Gaussian(1.0)),
    },
    "KernelHGR": {
        "ridge_z": ({}, 0.01, 0.1),
        "ridge_s": ({}, 0.01, 0.1),
        "kernel_z": ({}, Gaussian(1.0), Laplace(1.0)),
        "kernel_s": ({}, Gaussian(1.0), Laplace(1.0)),
    },
    "MutualInformation": {"k": ({}, 5, 2), "standardize": ({}, True, False)},
    "RecoveredVariance": {
        "n_features": ({}, 2, 5),
        "degree": ({}, 1, 2),
        "ridge": ({}, 0.01, 0.1),
        "seed": ({}, 0, 1),
        "exact_gradient": ({}, True, False),
    },
    "Adversary": {"hidden": ({}, (50,), (3, 2)), "n_bins": ({}, None, 3)},
}


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_every_argument_of_the_constructor_changes_something(name):
    cls = MEASURES[name]
    assert set(ARGUMENTS[name]) == set(inspect.signature(cls).parameters)
    z, s, _ = sample()
    for parameter, (common, one, other) in ARGUMENTS[name].items():
        measures = [cls(**common, **{parameter: value}) for value in (one, other)]
        first, second = (ready(measure, z, s) for measure in measures)
        assert getattr(first, parameter) == one
        assert getattr(second, parameter) == other
        if parameter == "block_size":
            # The same number by design; it is the memory that changes.
            assert largest_tensor(first, z, s) >= 13 * 13 > 2 * largest_tensor(second, z, s)
            continue
        if parameter == "exact_gradient":  # the same number; tests/oracles/test_recovered.py has the rest
            assert first(z, s) == second(z, s)
            continue
        assert abs(first(z, s) - second(z, s)) > 1e-6, parameter


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_the_dtype_of_z_is_the_dtype_of_the_value(name, dtype):
    z, s, w = sample()
    z = z.to(dtype)
    measure = ready(CASES[name].make(), z, s)
    for sensitive in (s, s.values.float(), s.values.double()):
        assert measure(z, sensitive).dtype == dtype
        assert measure(z, sensitive, w if CASES[name].weights else None).dtype == dtype
        assert measure.calibrate(z, sensitive, generator())(z, sensitive).dtype == dtype
    orders = torch.stack([torch.arange(13), torch.arange(13).flip(0)])
    assert measure.permuted(z, s, orders).dtype == dtype


def many(n, d, shift):
    """Rows in float32, so that both precisions see the same numbers."""
    g = generator(5)
    s = torch.rand(n, generator=g, dtype=torch.float64)
    z = torch.randn(n, d, generator=g, dtype=torch.float64)
    z[:, 0] += 2 * (s - 0.5).square() * 6
    return (z + shift).float(), s.float()


SINGLE = {
    **{
        f"HSIC {name} {estimator} {normalized=}": (
            lambda k=kernel, e=estimator, m=normalized: HSIC(k, estimator=e, normalized=m)
        )
        for name, kernel, estimator, normalized in (
            ("gaussian", KERNELS["gaussian"], "biased", False),
            ("gaussian", KERNELS["gaussian"], "unbiased", True),
            ("whiten", KERNELS["whiten"], "biased", True),
            ("whiten", KERNELS["whiten"], "unbiased", False),
            ("linear", KERNELS["linear"], "biased", False),
            ("scale-free", KERNELS["scale-free"], "unbiased", False),
            ("median", Gaussian(), "biased", False),
        )
    },
    "FeatureHSIC": lambda: FeatureHSIC(),
    "FeatureHSIC unbiased": lambda: FeatureHSIC(
        Gaussian("scale-free"), estimator="unbiased", normalized=True
    ),
    "DistanceCovariance": lambda: DistanceCovariance(),
    "DistanceCovariance unbiased": lambda: DistanceCovariance(estimator="unbiased", normalized=True),
    "EIPM": lambda: EIPM(Gaussian(1.3), 0.1, anchors=32),
    "GDP": lambda: GDP(),
    "GDP grid": lambda: GDP(0.1, weighting="grid"),
    "ScoreGap": lambda: ScoreGap(),
    "RankGap": lambda: RankGap(),
    "BinnedMMD": lambda: BinnedMMD(),
    "MutualInformation": lambda: MutualInformation(),
}


@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize("name", SINGLE)
def test_float32_is_within_1e4th_of_float64(name, shift):
    z, s = many(2_000, 2, shift)
    measure = SINGLE[name]().calibrate(z.double(), s.double())
    with torch.no_grad():
        single, double = measure(z, s), measure(z.double(), s.double())
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(double.item(), rel=1e-4)


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_float32_khgr_is_within_1e3rd_of_float64(shift):
    # Two inverse square roots at ridge 0.01 cost a digit; 300 rows, because the eigenproblem is cubic.
    z, s = many(300, 2, shift)
    measure = KernelHGR(kernel_z=Gaussian(1.3), kernel_s=Gaussian(0.3))
    assert measure(z, s).item() == pytest.approx(measure(z.double(), s.double()).item(), rel=1e-3)


@pytest.mark.parametrize(("estimator", "shift"), [("biased", 1e4), ("unbiased", 0.0)])
def test_float32_is_within_1e4th_of_float64_at_twenty_thousand_rows_in_tiles(estimator, shift):
    z, s = many(20_000, 5, shift)
    measure = HSIC(Gaussian(2.3), Gaussian(0.3), estimator=estimator)
    with torch.no_grad():
        single, double = measure(z, s), measure(z.double(), s.double())
    assert single.item() == pytest.approx(double.item(), rel=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_no_global_random_state_is_touched(name):
    z, s, _ = sample()
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state()  # noqa: NPY002
    measure = ready(CASES[name].make(), z, s)
    measure(z.requires_grad_(), s)
    measure.permuted(z, s, torch.arange(13).flip(0)[None])
    measure.calibrate(z, s, generator())
    if not isinstance(measure, Adversary):
        measure.calibrate(z, s)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(np.array_equal(a, b) for a, b in zip(numpy_state, np.random.get_state(), strict=True))  # noqa: NPY002


def test_the_layers_of_an_adversary_do_not_touch_the_global_random_state():
    z, s, _ = sample()
    state = torch.random.get_rng_state()
    Adversary().calibrate(z, s)
    assert torch.equal(state, torch.random.get_rng_state())


def test_many_rows_do_not_touch_the_global_random_state():
    z, s = many(2_200, 1, 0.0)
    state = torch.random.get_rng_state()
    for measure in (HSIC(block_size=2_200), HSIC(reference="uniform", block_size=2_200)):
        with torch.no_grad():
            assert torch.equal(measure(z, s), measure(z, s))
        measure.calibrate(z, s)
    assert torch.equal(state, torch.random.get_rng_state())


def test_delta_on_z_is_constant_and_has_no_gradient():
    z, s, _ = sample(kinds=CATEGORICAL)
    value = HSIC(Delta(), normalized=True)(s.values, s)
    assert value.item() == pytest.approx(1)
    assert not HSIC(Delta())(z.requires_grad_(), s).requires_grad


class Precomputed(Kernel):
    """A user's kernel on row numbers that hands out its own matrix."""

    def __init__(self, matrix):
        self.matrix = matrix

    def gram(self, a, b):
        same = a.shape == b.shape and len(a) == len(self.matrix)
        return self.matrix if same else self.matrix[a[:, 0].long()][:, b[:, 0].long()]

    def diagonal(self, x):
        return self.matrix.diagonal()[x[:, 0].long()]

    def bind(self, x, weights=None):
        return self

    def calibrate(self, x, *, weights=None, generator=None, freeze=False):
        return self

    @property
    def bound(self):
        return self.matrix.max().item()


@pytest.mark.parametrize("side", ["kernel_z", "kernel_s"])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_the_matrix_of_a_users_kernel_is_not_written_to(estimator, normalized, side):
    x, _, _ = sample()
    matrix = Gaussian(1.0).gram(x, x)
    kernel = Precomputed(matrix.clone())
    rows = torch.arange(13, dtype=torch.float64)[:, None]
    z, s = (rows, x[:, :1]) if side == "kernel_z" else (x[:, :1], rows)
    kernels = {"kernel_z": Gaussian(0.5), "kernel_s": Gaussian(0.5), side: kernel}
    HSIC(**kernels, estimator=estimator, normalized=normalized)(z, s)
    assert torch.equal(kernel.matrix, matrix)
