"""What every kernel promises, over the whole face of frhsic.kernels."""

import copy
import inspect
import json
import math
import pickle
from functools import partial

import pytest
import torch

import frhsic.kernels
from frhsic.kernels import (
    Delta,
    Energy,
    Gaussian,
    InverseMultiquadric,
    Kernel,
    Laplace,
    Linear,
    Matern,
    OnColumns,
    OnRanks,
    Product,
    Scaled,
    Sum,
    default_kernel,
)
from frhsic.kernels.documents import describe_kernel, has_document, read_kernel
from frhsic.kernels.fused import apply_fused

T = torch.tensor([[1.0, 0.2, 0.0], [0.0, 2.0, -0.3], [0.4, 0.0, 0.5]], dtype=torch.float64)
ORIGIN = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

# Ready to be evaluated, on three columns.
READY = {
    "Gaussian": [Gaussian(0.8), Gaussian(2.0, whiten=T), Gaussian(torch.tensor(1.3))],
    "Laplace": [Laplace(0.8), Laplace(1.0, whiten=T)],
    "InverseMultiquadric": [InverseMultiquadric(0.8), InverseMultiquadric(1.0, whiten=T)],
    "Matern": [Matern(0.8), Matern(1.0, whiten=T), Matern(1.2, nu=2.5)],
    "Linear": [Linear(), Linear(whiten=T, origin=ORIGIN)],
    "Energy": [Energy(), Energy(whiten=T, origin=ORIGIN)],
    "Delta": [Delta()],
    "Sum": [Sum(Gaussian(1.0), Linear()), Energy() + Delta()],
    "Product": [Product(Gaussian(1.0), Laplace(2.0)), Linear() * Gaussian(1.0)],
    "Scaled": [Scaled(Gaussian(1.0), 0.3), 4.0 * Energy()],
    "OnColumns": [OnColumns(Gaussian(1.0), (1,)), OnColumns(Linear(), (2, 0))],
    "OnRanks": [
        OnRanks(Gaussian(0.3)).bind(torch.linspace(-2.0, 2.0, 60, dtype=torch.float64).reshape(20, 3))
    ],
    "default_kernel": [
        default_kernel(["continuous", "categorical", "continuous"], 1.0),
        default_kernel(["categorical"] * 3),
    ],
}
NAMES = sorted(name for name in frhsic.kernels.__all__ if name != "Kernel")
RADIAL = [Gaussian, Laplace, InverseMultiquadric, Matern, partial(Matern, nu=2.5)]
WHITENABLE = [*(lambda whiten, k=k: k(1.5, whiten=whiten) for k in RADIAL), Linear, Energy]


def kernels(name):
    """Fail for a kernel on the face that has no instance here."""
    assert name in READY, f"{name} is in frhsic.kernels.__all__ but has no instances in this test"
    return READY[name]


def sample(n=12, d=3, seed=0, lead=()):
    x = torch.randn(*lead, n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x[..., 1] = x[..., 1].round()
    x[..., 1, :] = x[..., 0, :]  # two equal rows
    return x


def test_the_base_class_is_abstract():
    assert inspect.isabstract(Kernel)
    with pytest.raises(TypeError):
        Kernel()


@pytest.mark.parametrize("name", NAMES)
def test_gram_is_symmetric_and_positive_semidefinite(name):
    for kernel in kernels(name):
        for seed in range(3):
            x = sample(seed=seed)
            K = kernel.gram(x, x)
            torch.testing.assert_close(K, K.mT, rtol=1e-12, atol=1e-12)
            assert torch.linalg.eigvalsh(K).min() > -1e-10 * len(x)


@pytest.mark.parametrize("name", NAMES)
def test_gram_of_a_stack_is_the_stack_of_gram_matrices(name):
    for kernel in kernels(name):
        a, b = sample(7, lead=(2, 4)), sample(5, seed=1, lead=(2, 4))
        K = kernel.gram(a, b)
        assert K.shape == (2, 4, 7, 5)
        assert kernel.diagonal(a).shape == (2, 4, 7)
        for i in range(2):
            for j in range(4):
                torch.testing.assert_close(K[i, j], kernel.gram(a[i, j], b[i, j]), rtol=1e-10, atol=1e-12)
        # One shared right side.
        torch.testing.assert_close(kernel.gram(a, b[0, 0])[1, 2], kernel.gram(a[1, 2], b[0, 0]))


@pytest.mark.parametrize("name", NAMES)
def test_diagonal_is_the_diagonal_and_the_bound_is_above_it(name):
    for kernel in kernels(name):
        x = sample()
        diagonal = kernel.diagonal(x)
        torch.testing.assert_close(diagonal, kernel.gram(x, x).diagonal(), rtol=1e-12, atol=1e-12)
        assert (diagonal <= kernel.bound).all()


def centred(M):
    """A symmetric matrix whose rows sum to zero, which is what `inner` is for."""
    M = M + M.mT
    return M - M.mean(dim=0) - M.mean(dim=1, keepdim=True) + M.mean()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_inner_and_quadratic_are_forms_of_the_gram_matrix(name, lead):
    generator = torch.Generator().manual_seed(3)
    M = centred(torch.randn(12, 12, dtype=torch.float64, generator=generator))
    E = torch.randn(5, 12, dtype=torch.float64, generator=generator)
    for kernel in kernels(name):
        x = sample(lead=lead)
        K = kernel.gram(x, x)
        torch.testing.assert_close(kernel.inner(x, M), (K * M).sum(dim=(-2, -1)), rtol=1e-10, atol=1e-10)
        forms = (E @ K @ E.mT).diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(kernel.quadratic(x, E), forms, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_inner_and_gram_have_the_same_gradient(name):
    M = centred(torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(4)))
    for kernel in kernels(name):
        x = sample()
        x[1] += 1.0  # no two equal rows: the energy kernel has a kink there
        x.requires_grad_()
        value = kernel.inner(x, M)
        if not value.requires_grad:
            assert name in ("Delta", "default_kernel")
            continue
        (inner,) = torch.autograd.grad(value, x)
        (gram,) = torch.autograd.grad((kernel.gram(x, x) * M).sum(), x)
        torch.testing.assert_close(inner, gram, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_sum_product_and_multiple_compose_gram_matrices(name):
    x, y = sample(6), sample(5, seed=1)
    other = Gaussian(1.7)
    for kernel in kernels(name):
        K, L = kernel.gram(x, y), other.gram(x, y)
        torch.testing.assert_close((kernel + other).gram(x, y), K + L)
        torch.testing.assert_close((kernel * other).gram(x, y), K * L)
        torch.testing.assert_close((2.5 * kernel).gram(x, y), 2.5 * K)
        torch.testing.assert_close((kernel * 2.5).gram(x, y), 2.5 * K)
        assert (kernel + other).bound == kernel.bound + 1
        assert (kernel * other).bound == kernel.bound
        assert (2.5 * kernel).bound == 2.5 * kernel.bound


@pytest.mark.parametrize("factor", [-1.0, 0.0, math.inf, math.nan])
def test_a_multiple_that_is_not_positive_is_refused(factor):
    with pytest.raises(ValueError, match=r"^'factor' must be a positive number\. Got "):
        factor * Gaussian(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_calling_twice_gives_the_same_answer_and_changes_nothing(name):
    for kernel in kernels(name):
        x = sample()
        before, values = x.clone(), copy.deepcopy(vars(kernel))
        first = kernel.gram(x, x)
        kernel.gram(2.0 * x, x)
        kernel.calibrate(5.0 * x, freeze=True).gram(x, x)
        assert torch.equal(first, kernel.gram(x, x))
        assert torch.equal(x, before)
        assert repr(values) == repr(vars(kernel))


@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_immutable_and_copies_and_pickles_give_the_same_gram_matrix(name):
    x = sample()
    for kernel in kernels(name):
        expected = kernel.gram(x, x)
        assert torch.equal(copy.deepcopy(kernel).gram(x, x), expected)
        assert torch.equal(pickle.loads(pickle.dumps(kernel)).gram(x, x), expected)
        for field in vars(kernel):
            with pytest.raises(AttributeError):
                setattr(kernel, field, 1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_of_x_is_kept(name, dtype):
    for kernel in kernels(name):
        whiten = getattr(kernel, "whiten", False)
        if isinstance(whiten, torch.Tensor):
            continue  # its dtype is the user's choice
        x = sample().to(dtype)
        assert kernel.gram(x, x).dtype == kernel.diagonal(x).dtype == dtype


RULES = {
    "median": lambda k: k("median"),
    "scale-free": lambda k: k("scale-free"),
    "whiten": lambda k: k(1.0, whiten=True),
    "in a sum": lambda k: k("median") + Linear(),
    "in a product": lambda k: Laplace(1.0) * k("scale-free"),
    "in a multiple": lambda k: 2.0 * k("median"),
    "on columns": lambda k: OnColumns(k("median"), (0, 1)),
}


@pytest.mark.parametrize("kernel", RADIAL)
@pytest.mark.parametrize("rule", RULES)
def test_an_unresolved_rule_is_refused_and_freeze_resolves_it(rule, kernel):
    x = sample()
    unresolved = RULES[rule](kernel)
    pattern = r"^'bandwidth' must be a number before the kernel is evaluated\. Got the rule .*freeze=True"
    with pytest.raises(ValueError, match=pattern):
        unresolved.gram(x, x)
    frozen = unresolved.calibrate(x, freeze=True)
    assert frozen is not unresolved
    K = frozen.gram(x, x)
    assert torch.isfinite(K).all()
    # Frozen means frozen: other rows are measured by the same scale.
    torch.testing.assert_close(frozen.gram(x[:4], x[:4]), K[:4, :4])
    torch.testing.assert_close(frozen.bind(7.0 * x).gram(x, x), K)
    with pytest.raises(ValueError, match=pattern):
        unresolved.gram(x, x)


@pytest.mark.parametrize("kernel", [Linear, Energy])
def test_an_unresolved_whitening_is_refused_and_freeze_resolves_it(kernel):
    x = sample()
    with pytest.raises(
        ValueError, match=r"^'whiten' must be resolved before .*Got the rule whiten=True.*freeze=True"
    ):
        kernel(whiten=True).gram(x, x)
    frozen = kernel(whiten=True).calibrate(x, freeze=True)
    torch.testing.assert_close(frozen.bind(7.0 * x).gram(x, x), frozen.gram(x, x))


@pytest.mark.parametrize("kernel", RADIAL)
@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.inf, math.nan, "mean", "silverman"])
def test_a_wrong_bandwidth_is_refused(kernel, bandwidth):
    with pytest.raises(
        ValueError, match=r"^'bandwidth' must be a positive number, 'median' or 'scale-free'\. Got "
    ):
        kernel(bandwidth)


def test_default_kernel_wants_one_bandwidth_for_each_column():
    with pytest.raises(ValueError):
        default_kernel(["continuous", "continuous"], [1.0])


@pytest.mark.parametrize("kernel", RADIAL)
def test_median_is_fixed_by_calibrate_and_scale_free_is_not(kernel):
    x = sample()
    fixed = kernel("median").calibrate(x)
    assert isinstance(fixed.bandwidth, float)
    assert kernel("median").calibrate(3.0 * x).bandwidth == pytest.approx(3.0 * fixed.bandwidth)
    assert fixed.calibrate(3.0 * x).bandwidth == fixed.bandwidth
    assert kernel("scale-free").calibrate(x).bandwidth == "scale-free"
    assert kernel(1.0, whiten=True).calibrate(x).whiten is True
    assert isinstance(kernel("scale-free", whiten=True).calibrate(x, freeze=True).whiten, torch.Tensor)


@pytest.mark.parametrize("kernel", RADIAL)
@pytest.mark.parametrize("factor", [0.01, 100.0])
@pytest.mark.parametrize("rule", ["scale-free", "median"])
def test_rules_are_blind_to_the_scale_of_x(kernel, factor, rule):
    x = sample()
    expected = kernel(rule).bind(x).gram(x, x)
    torch.testing.assert_close(
        kernel(rule).bind(factor * x).gram(factor * x, factor * x), expected, rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("make", WHITENABLE)
def test_whitened_kernels_are_blind_to_invertible_maps(make):
    x = sample()
    weights = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = make(whiten=True).bind(x, weights / weights.sum()).gram(x, x)
    for A in (T, torch.diag(torch.tensor([3.0, -0.2, 1.0], dtype=torch.float64)), T @ T + 1.0):
        y = x @ A + 5.0
        actual = make(whiten=True).bind(y, weights / weights.sum()).gram(y, y)
        torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("make", WHITENABLE)
@pytest.mark.parametrize("factor", [1e-4, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whitened_kernels_are_blind_to_the_unit_of_one_column(make, factor, dtype):
    x = sample().to(dtype)
    y = x * torch.tensor([1.0, factor, 1.0], dtype=dtype)
    expected = make(whiten=True).bind(x).gram(x, x)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(make(whiten=True).bind(y).gram(y, y), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("make", WHITENABLE)
def test_whitening_stays_finite_on_columns_without_variance(make):
    x = sample()
    x[:, 2] = 4.0
    x = torch.cat([x, x[:, :1] + x[:, 1:2]], dim=1)  # and one that is the sum of two others
    x.requires_grad_()
    K = make(whiten=True).bind(x).gram(x, x)
    (gradient,) = torch.autograd.grad(K.triu(1).sum(), x)
    assert torch.isfinite(K).all()
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("make", [lambda k=k: k(1.0) for k in RADIAL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e3, 1e8])
@pytest.mark.parametrize("d", [1, 3])
def test_values_and_gradients_are_finite_far_apart_and_close_together(make, dtype, scale, d):
    kernel = make()
    x = (sample(d=3)[:, :d] * scale).to(dtype).requires_grad_()
    M = torch.ones(12, 12, dtype=dtype)
    for value in (kernel.gram(x, x).sum(), kernel.quadratic(x, M[:2]).sum()):
        (gradient,) = torch.autograd.grad(value, x)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
        assert 12 - 1e-4 <= value <= 288 + 1e-3
    value = kernel.inner(x, centred(torch.eye(12, dtype=dtype)))
    assert -1e-4 <= value <= 22 + 1e-3
    assert torch.isfinite(torch.autograd.grad(value, x)[0]).all()


@pytest.mark.parametrize("kernel", RADIAL)
def test_the_value_does_not_change_when_far_rows_are_shifted_together(kernel):
    x = sample().float()
    shifted = x + 4096.0
    exact = kernel(1.3).gram(shifted.double(), shifted.double())
    torch.testing.assert_close(kernel(1.3).gram(shifted, shifted).double(), exact, rtol=1e-3, atol=1e-4)


def test_no_kernel_touches_the_global_random_state():
    x = sample(2_100)
    state = torch.random.get_rng_state()
    for name in NAMES:
        for kernel in kernels(name):
            kernel.calibrate(x, freeze=True).gram(x[:5], x[:5])
    Gaussian("median").calibrate(x)
    Gaussian("median").bind(x)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("name", NAMES)
def test_kernels_without_rules_are_fixed(name):
    for kernel in kernels(name)[
        : 1 if name == "Product" else None
    ]:  # the other one has a factor with an origin
        assert kernel.fixed is True


@pytest.mark.parametrize("kernel", RADIAL)
@pytest.mark.parametrize("rule", RULES)
def test_a_kernel_is_fixed_once_its_rules_are_resolved(rule, kernel):
    x = sample()
    unresolved = RULES[rule](kernel)
    assert unresolved.fixed is False
    assert unresolved.bind(x).fixed is True
    assert unresolved.calibrate(x, freeze=True).fixed is True
    assert unresolved.calibrate(x).fixed is (rule in ("median", "in a sum", "in a multiple", "on columns"))


@pytest.mark.parametrize("kernel", [Linear, Energy])
def test_a_whitening_rule_is_not_fixed_and_its_matrix_is(kernel):
    x = sample()
    assert kernel(whiten=True).fixed is False
    assert kernel(whiten=True).calibrate(x).fixed is False
    assert kernel(whiten=True).bind(x).fixed is True
    assert (Gaussian(1.0) + 2.0 * OnColumns(kernel(whiten=True), (0, 2))).fixed is False


@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_kernel_means_the_same_once_centred_whatever_it_is_bound_to(name):
    x, other = sample(), sample(20, seed=3) + 2.0
    for kernel in kernels(name):
        expected = centred(kernel.bind(x).gram(x, x))
        found = centred(kernel.bind(other).gram(x, x))
        if kernel.fixed:
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        else:
            assert name == "Product"


@pytest.mark.parametrize("lead", [(), (2,)])
def test_the_fused_gradients_of_distances_are_those_of_the_sum(lead):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(*lead, 7, 2, generator=g, dtype=torch.float64)
    x[..., 3, :] = x[..., 1, :]  # equal rows have no direction
    M = torch.randn(7, 7, generator=g, dtype=torch.float64)
    M = M + M.T
    M = M - M.mean(dim=0) - M.mean(dim=1, keepdim=True) + M.mean()
    plain, fused = (x.clone().requires_grad_() for _ in range(2))
    gap = plain.unsqueeze(-2) - plain.unsqueeze(-3)
    squared = gap.square().sum(dim=-1)
    D = torch.where(squared > 0, torch.where(squared > 0, squared, 1.0).sqrt(), 0.0)
    expected = -1.5 * (M * D).sum(dim=(-2, -1))
    found = Energy().inner(fused, M, 3.0)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    one, other = (
        torch.autograd.grad(v.sum(), y, create_graph=True)[0] for v, y in ((expected, plain), (found, fused))
    )
    torch.testing.assert_close(other, one, rtol=1e-10, atol=1e-12)
    second, again = (torch.autograd.grad(v.square().sum(), y)[0] for v, y in ((one, plain), (other, fused)))
    torch.testing.assert_close(again, second, rtol=1e-8, atol=1e-10)


class Failing(torch.autograd.Function):
    """A fused function that fails by itself."""

    @staticmethod
    def forward(ctx, x):
        raise RuntimeError("sizes do not match")


class Doubled(torch.autograd.Function):
    """A fused function without the form that ``torch.func`` needs."""

    @staticmethod
    def forward(ctx, x):
        return 2.0 * x.sum()


def test_only_the_error_of_torch_func_leads_to_the_slow_path():
    x = torch.ones(3)
    assert apply_fused(Doubled, x).item() == 6.0
    seen = []
    torch.func.vmap(lambda row: seen.append(apply_fused(Doubled, row)) or row)(torch.ones(2, 3))
    torch.func.grad(lambda row: seen.append(apply_fused(Doubled, row)) or row.sum())(x)
    assert seen == [None, None]
    with pytest.raises(RuntimeError, match="sizes do not match"):
        apply_fused(Failing, x)


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_written_as_json_is_the_same_kernel(name):
    x = sample()
    for kernel in kernels(name):
        other = read_kernel(json.loads(json.dumps(describe_kernel(kernel))))
        assert type(other) is type(kernel)
        torch.testing.assert_close(other.gram(x, x), kernel.gram(x, x), rtol=1e-6, atol=1e-9)
        frozen = kernel.calibrate(x, freeze=True)
        again = read_kernel(json.loads(json.dumps(describe_kernel(frozen))))
        assert describe_kernel(again) == describe_kernel(frozen)


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"class": "Gaussian"},
        {"class": "Kernel", "arguments": {}},
        {"class": "default_kernel", "arguments": {}},
        {"class": "os.system", "arguments": {}},
        {"class": 3, "arguments": {}},
        {"class": "Delta", "arguments": {"more": 1}},
        {"class": "Delta", "arguments": []},
        {"class": "Gaussian", "arguments": {"bandwidth": True, "whiten": False}},
        {"class": "Gaussian", "arguments": {"bandwidth": "mean", "whiten": False}},
        {"class": "Gaussian", "arguments": {"bandwidth": -1.0, "whiten": False}},
        {"class": "Gaussian", "arguments": {"bandwidth": 1.0, "whiten": [["a"]]}},
        {"class": "Matern", "arguments": {"bandwidth": 1.0, "whiten": False, "nu": 3.0}},
        {
            "class": "OnColumns",
            "arguments": {"kernel": {"class": "Delta", "arguments": {}}, "columns": [0.5]},
        },
        {"class": "Scaled", "arguments": {"kernel": 1.0, "factor": 2.0}},
    ],
    ids=repr,
)
def test_a_document_of_no_kernel_is_refused(document):
    with pytest.raises((ValueError, TypeError)):
        read_kernel(document)


class Unknown(Gaussian):
    """A kernel of somebody else."""


def test_a_kernel_of_others_has_no_document():
    for kernel in (Unknown(1.0), 2.0 * Unknown(1.0)):
        assert not has_document(kernel)
        with pytest.raises(
            ValueError, match=r"must be kernels of frhsic, which bytes can name\. Got Unknown"
        ):
            describe_kernel(kernel)
