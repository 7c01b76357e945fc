"""Tiles: other routes to the same number, and what they may cost."""

import pytest
import torch

from frhsic import HSIC, Sensitive
from frhsic.kernels import Delta, Energy, Gaussian, Laplace, OnColumns
from frhsic.numerics._lowrank import pivoted_factor

N = 90
ROUTES = {
    "one Gaussian column": (Gaussian(0.5), True),
    "categories": (Delta(), True),
    "Laplace, full rank": (Laplace(0.5), False),
    "energy, full rank": (Energy(), False),
}


def sample(categories=False):
    generator = torch.Generator().manual_seed(0)
    s = torch.rand(N, 1, generator=generator, dtype=torch.float64)
    if categories:
        s = (4 * s).floor()
    z = torch.randn(2, N, 3, generator=generator, dtype=torch.float64) + 2 * s
    w = torch.rand(N, generator=generator, dtype=torch.float64)
    return z, s, w


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("estimator", "weighted"), [("biased", False), ("biased", True), ("unbiased", False)]
)
def test_every_tiled_route_gives_the_value_and_the_gradient_of_the_whole(
    route, estimator, normalized, weighted
):
    kernel_s, factored = ROUTES[route]
    z, s, w = sample(route == "categories")
    assert (pivoted_factor(kernel_s.bind(s), s, 22) is not None) == factored
    results = []
    for block_size in (N, 32, 7):
        x = z.clone().requires_grad_()
        measure = HSIC(
            Gaussian(1.5), kernel_s, estimator=estimator, normalized=normalized, block_size=block_size
        )
        value = measure(x, s, w if weighted else None)
        results.append((value.detach(), torch.autograd.grad(value.sum(), x)[0]))
    for value, gradient in results[1:]:
        torch.testing.assert_close(value, results[0][0], rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(gradient, results[0][1], rtol=1e-8, atol=1e-13)


def test_tiles_of_a_kernel_on_columns_and_of_products_are_blocks_of_the_gram_matrix():
    z, s, _ = sample()
    x = torch.cat((z[0], s), dim=1)
    kernel = 2.0 * (OnColumns(Gaussian(1.0), (0, 1)) * Laplace(1.0)) + OnColumns(Energy(), (2,))
    tile = kernel.tiles(x)
    rows, columns = slice(3, 20), slice(40, 90)
    torch.testing.assert_close(tile(rows, columns), kernel.gram(x, x)[rows, columns], rtol=1e-12, atol=1e-14)


def test_constant_s_is_zero_in_tiles_even_when_normalised():
    z, s, _ = sample()
    for estimator in ("biased", "unbiased"):
        measure = HSIC(Gaussian(1.0), Gaussian(1.0), estimator=estimator, normalized=True, block_size=32)
        assert measure(z, torch.full_like(s, 3.3)).abs().max() == 0


def test_mixed_columns_go_through_tiles_too():
    z, s, _ = sample()
    mixed = Sensitive(torch.cat((s, (3 * s).floor()), dim=1), ("age", "group"), ("continuous", "categorical"))
    whole, tiled = (HSIC(block_size=size)(z, mixed) for size in (N, 16))
    torch.testing.assert_close(tiled, whole, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("position", [0, 1_000, 3_000, 5_999])
def test_one_outlier_does_not_take_all_the_weight_under_the_uniform_reference(position):
    s = torch.randn(6_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    measure = HSIC(reference="uniform")
    before = measure.effective_rows(s)
    s[position] = 40.0
    assert measure.effective_rows(s) > 0.5 * before


def test_a_category_that_the_density_missed_does_not_take_all_the_weight():
    codes = torch.zeros(6_000, 1, dtype=torch.float64)
    codes[:2_500] = 1.0
    codes[-2:] = 2.0
    s = Sensitive(codes, ("group",), ("categorical",))
    assert HSIC(reference="uniform").effective_rows(s) > 100
