"""The uniform reference law of S, HSIC(reference="uniform"), on finite laws."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from frhsic import HSIC, Sensitive
from frhsic.kernels import Delta, Gaussian


def categorical(measure):
    """The same measure with S as codes of categories."""
    return lambda z, s, w: measure(z, Sensitive(s[:, None], ("s",), ("categorical",)), w)


def uniform(kernel_s=None):
    return HSIC(Gaussian(0.9), kernel_s or Gaussian(0.7), reference="uniform")


def product(kernel_s=None):
    return HSIC(Gaussian(0.9), kernel_s or Gaussian(0.7))


def test_uniform_reference_is_zero_when_the_law_factorises(law):
    """Weights that depend on S alone keep a product law a product law."""
    assert abs(law.independent.evaluate(uniform())) < 1e-15
    assert law.evaluate(uniform()) > 1e-4


def test_uniform_reference_is_zero_when_z_is_constant():
    s = torch.tensor(np.random.default_rng(0).gamma(1.0, size=60))
    z = torch.full((60, 3), 2.5, dtype=torch.float64)
    assert abs(uniform()(z, s).item()) < 1e-15
    assert uniform()(z * s[:, None], s).item() > 1e-2


def test_uniform_reference_is_zero_on_a_crossed_sample():
    """Every z with every s, unweighted: the empirical law is a product whatever the density of S."""
    rng = np.random.default_rng(1)
    z, s = rng.normal(size=(7, 3)), rng.gamma(0.5, size=9)
    value = uniform()(torch.tensor(np.repeat(z, 9, axis=0)), torch.tensor(np.tile(s, 7))).item()
    assert abs(value) < 1e-15


def coded(law):
    return replace(law, s=np.arange(len(law.s), dtype=float))


def test_uniform_reference_gives_every_category_the_same_mass(finite_law):
    """For categories the reweighted law is P(z | s) / K exactly: HSIC of that law under "product"."""
    rng = np.random.default_rng(2)
    conditional = rng.dirichlet(np.ones(5), size=4).T
    law = finite_law(rng.normal(size=(5, 3)), np.arange(4.0), conditional * [0.55, 0.3, 0.1, 0.05])
    levelled = replace(law, p=conditional / 4.0)
    expected = levelled.evaluate(categorical(product(Delta())))
    assert law.evaluate(categorical(uniform(Delta()))) == pytest.approx(expected, rel=1e-12)
    assert law.evaluate(categorical(product(Delta()))) != pytest.approx(expected, rel=1e-2)


def test_uniform_reference_lets_no_category_weigh_more_than_ten_times_the_mean(finite_law):
    """A category rarer than 1 / (10 K) is raised to ten times the mean weight and no further."""
    rng = np.random.default_rng(3)
    conditional = rng.dirichlet(np.ones(5), size=3).T
    law = finite_law(rng.normal(size=(5, 1)), np.arange(3.0), conditional * [0.9, 0.095, 0.005])
    mass = np.array([1.0, 1.0, 0.005 * 10 * 3])
    clipped = replace(law, p=conditional * mass / mass.sum())
    expected = clipped.evaluate(categorical(product(Delta())))
    assert law.evaluate(categorical(uniform(Delta()))) == pytest.approx(expected, rel=1e-12)


def rare_law(finite_law, rare):
    """Nine values of S; Z is fair on all but the largest, of that probability, where it is certain."""
    ps = np.full(9, (1.0 - rare) / 8.0)
    ps[-1] = rare
    conditional = np.full((2, 9), 0.5)
    conditional[:, -1] = [0.0, 1.0]
    return finite_law(np.array([[-1.0], [1.0]]), np.append(np.linspace(0.0, 1.0, 8), 3.0), conditional * ps)


@pytest.mark.parametrize("kind", ["continuous", "categorical"])
def test_uniform_reference_sees_a_dependence_that_a_rare_value_carries(finite_law, kind):
    """With one value of S in fifty the product reference all but overlooks it; at equal shares both agree."""
    as_kind = categorical if kind == "categorical" else lambda measure: measure
    kernel_s = Delta() if kind == "categorical" else Gaussian(0.7)
    rare, common = (rare_law(finite_law, share) for share in (0.02, 1.0 / 9.0))
    if kind == "categorical":
        rare, common = coded(rare), coded(common)
    ratios = [
        law.evaluate(as_kind(uniform(kernel_s))) / law.evaluate(as_kind(product(kernel_s)))
        for law in (rare, common)
    ]
    assert ratios[0] > 4.0
    assert ratios[1] < 0.5 * ratios[0]
    if kind == "categorical":
        assert ratios[1] == pytest.approx(1.0, rel=1e-12)
