"""Corollary "Localized conditional-MMD control by HSIC", for the profile that the library reports."""

import numpy as np
import pytest
import torch

from frhsic.dependence import HSIC
from frhsic.inference import localized_profile
from frhsic.kernels import Delta, Gaussian


def pair(n=400, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    return np.where(np.abs(s) > 1, 1.0, 0.0) + rng.normal(size=n), s


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("labels", [2, 5, 12])
def test_the_contrast_times_the_mass_of_its_cell_is_at_most_the_root_of_hsic(labels, weighted):
    z, s = pair()
    code = np.digitize(s, np.quantile(s, np.linspace(0, 1, labels + 1)[1:-1]))
    w = np.random.default_rng(1).uniform(0.2, 3.0, len(z)) if weighted else np.ones(len(z))
    letters = np.array(list("abcdefghijkl"))[code]
    found = localized_profile(z, letters, random_state=0, sample_weight=w if weighted else None)
    w = w / w.sum()
    kernel_z = Gaussian("median").calibrate(torch.tensor(z)[:, None])
    hsic = HSIC(kernel_z, Delta())(torch.tensor(z), torch.tensor(code).double(), torch.tensor(w)).item()
    left = np.array(found.contrast) * found.mass
    assert found.mass == pytest.approx(np.bincount(code, w))
    assert (left <= np.sqrt(hsic) * (1 + 1e-9)).all()
    assert left.max() > 0.3 * np.sqrt(hsic)  # or it would hold of anything small


def test_of_two_equal_categories_it_is_an_equality_up_to_their_number():
    """With delta kernels on two halves E[l(S, a)(mu_S - mu)] is half the gap, and HSIC the sum over both."""
    z, s = pair()
    group = (s > np.median(s)).astype(int)
    found = localized_profile(z, np.array(["a", "b"])[group], random_state=0)
    kernel_z = Gaussian("median").calibrate(torch.tensor(z)[:, None])
    hsic = HSIC(kernel_z, Delta())(torch.tensor(z), torch.tensor(group).double()).item()
    parts = [0.5 * contrast for contrast in found.contrast]
    assert sum(part**2 for part in parts) == pytest.approx(hsic, rel=1e-6)
    assert all(part**2 <= hsic for part in parts)
