"""Recovered variance: rows left out one by one, its target, and its mean under independence."""

import itertools

import numpy as np
import pytest
import torch

from frhsic.data import Sensitive
from frhsic.dependence import RecoveredVariance


def rows(n, d, seed=0, slope=1.0):
    g = torch.Generator().manual_seed(seed)
    s = torch.randn(n, generator=g, dtype=torch.float64)
    z = torch.randn(n, d, generator=g, dtype=torch.float64)
    z[:, 0] = z[:, 0] + slope * s
    return z, s, 0.2 + torch.rand(n, generator=g, dtype=torch.float64)


def ranks(s, w):
    return np.array([w[s < x].sum() + 0.5 * w[s == x].sum() for x in s])


def regress(F, T, w, ridge):
    """Coefficients and intercept of a weighted ridge regression; the ridge is that of all rows."""
    mean, centre = w @ F / w.sum(), w @ T / w.sum()
    A = (F - mean).T @ (w[:, None] * (F - mean)) + ridge * np.eye(F.shape[1])
    B = np.linalg.solve(A, (F - mean).T @ (w[:, None] * (T - centre)))
    return B, centre - mean @ B


def features(z, s, w, measure):
    """Functions of z and of s, and weights of sum one."""
    w = np.full(len(z), 1.0 / len(z)) if w is None else (w / w.sum()).numpy()
    x = z.numpy() - w @ z.numpy()
    root = np.linalg.cholesky(x.T @ (w[:, None] * x))
    plain = x / np.sqrt(np.mean(w @ x**2))
    x = np.linalg.solve(root, x.T).T
    drawn, half = measure._draw(z, None), measure.n_features // 2
    angles = np.hstack((x @ drawn.frequencies.numpy()[:, :half], plain @ drawn.frequencies.numpy()[:, half:]))
    F = np.hstack((x, np.sqrt(2.0) * np.cos(angles + drawn.phases.numpy())))
    u = ranks(s.numpy(), w)
    T = np.sqrt(2.0) * np.cos(np.pi * u[:, None] * np.arange(1, measure.degree + 1))
    return F, T, w


def missed(F, T, w, ridge):
    """Train without each row in turn."""
    found = 0.0
    for i in range(len(F)):
        others = np.arange(len(F)) != i
        B, intercept = regress(F[others], T[others], w[others], ridge)
        found += w[i] * ((T[i] - intercept - F[i] @ B) ** 2).sum()
    return found


def naive_by_chance(F, T, w, ridge):
    """What independent rows of T of this variance miss: coefficients of each row in each prediction."""
    T, n = T - w @ T, len(F)
    lengths = (T**2).sum(axis=1)
    own, other, found = w @ lengths, (w**2 @ lengths) / (w**2).sum(), 0.0
    for i in range(n):
        others = np.arange(n) != i
        B, intercept = regress(F[others], np.eye(n)[others], w[others], ridge)
        found += w[i] * (own + other * ((intercept + F[i] @ B) ** 2).sum())
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("count", "degree", "ridge"), [(0, 1, 0.01), (7, 3, 0.1), (30, 5, 0.01)])
def test_it_is_a_regression_without_each_row_in_turn(count, degree, ridge, weighted):
    z, s, w = rows(25, 3)
    measure = RecoveredVariance(count, degree=degree, ridge=ridge, seed=4)
    w = w if weighted else None
    F, T, shares = features(z, s, w, measure)
    parts, alone = (F, T, shares, ridge), (0.0 * F, T, shares, ridge)  # alone: the mean of the other rows
    ratio = missed(*parts) / naive_by_chance(*parts)
    expected = 1.0 - ratio / (missed(*alone) / naive_by_chance(*alone))
    assert measure(z, s, w).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("count", [1, 9])  # fewer and more features than rows
def test_what_is_missed_by_chance_is_the_mean_over_all_orders_of_s(count):
    z, s, _ = rows(6, 1)
    measure = RecoveredVariance(count, degree=2, ridge=0.1)
    F, T, w = features(z, s, None, measure)
    orders = list(itertools.permutations(range(6)))
    every = np.mean([missed(F, T[list(order)], w, measure.ridge) for order in orders])
    assert measure(z, s).item() == pytest.approx(1.0 - missed(F, T, w, measure.ridge) / every, rel=1e-9)
    mean = measure.permuted(z, s, torch.tensor(orders)).mean().item()
    assert mean == pytest.approx(0.0, abs=1e-12)


def test_on_many_shares_a_finite_law_it_is_the_formula_of_the_docstring():
    # Six values of (z, s) with unequal shares: every moment is a sum of six terms.
    z = torch.tensor([[-1.0, 0.5], [0.0, 2.0], [0.5, -1.0], [1.0, 1.0], [2.0, 0.0], [3.0, -2.0]]).double()
    s = torch.tensor([0.0, 0.0, 1.0, 1.0, 2.0, 2.0]).double()
    share = torch.tensor([0.3, 0.1, 0.1, 0.2, 0.1, 0.2]).double()
    measure = RecoveredVariance(4, degree=2, ridge=0.2)
    F, T = measure._features(z, share).numpy(), measure.targets(Sensitive.of(s), share).numpy()
    p = share.numpy()
    F, T = F - p @ F, T - p @ T
    S, C = F.T @ (p[:, None] * F), F.T @ (p[:, None] * T)
    A = np.linalg.inv(S + measure.ridge * np.eye(len(S)))
    explained = np.trace(C.T @ A @ (S + 2 * measure.ridge * np.eye(len(S))) @ A @ C)
    B = A @ C
    assert explained == pytest.approx((p @ (T**2 - (T - F @ B) ** 2)).sum(), rel=1e-12)
    every = torch.repeat_interleave(torch.arange(6), (20_000 * share).round().long())
    target = explained / (p @ T**2).sum()
    assert measure(z[every], s[every]).item() == pytest.approx(target, abs=2e-3)
    assert 0.1 < target < 0.9


@pytest.mark.parametrize(
    ("n", "count", "weighted", "allowed"),
    [(30, 60, False, 0.0), (200, 20, False, 0.0), (200, 20, True, 0.003)],  # weights that follow s
)
def test_its_mean_under_independence_is_zero(n, count, weighted, allowed):
    measure, found = RecoveredVariance(count, degree=2), []
    for seed in range(300):
        z, s, _ = rows(n, 3, seed, slope=0.0)
        found.append(measure(z, s, 1.0 + 4.0 * (s > 0) if weighted else None).item())
    assert abs(np.mean(found)) < 3.5 * np.std(found) / len(found) ** 0.5 + allowed


def test_no_scale_matters():
    z, s, w = rows(60, 2)
    measure = RecoveredVariance(0)
    moved = z @ torch.tensor([[2.0, 1.0], [0.0, 1e-3]], dtype=z.dtype) + 5.0
    assert measure(moved, s.exp(), w).item() == pytest.approx(measure(z, s, w).item(), rel=1e-6)


def test_categories_and_several_columns():
    z, s, _ = rows(90, 2)
    codes = (s > 0).double()
    measure = RecoveredVariance(10)
    label = Sensitive(codes[:, None], ("sex",), ("categorical",))
    both = Sensitive(torch.stack((s, codes), dim=1), ("age", "sex"), ("continuous", "categorical"))
    assert measure.targets(label, None).shape == (90, 2)
    assert measure.targets(both, None).shape == (90, 7)
    assert 0.1 < measure(z, label).item() < 1.0
    perfect = torch.stack((codes, z[:, 1]), dim=1)
    assert measure(perfect, label).item() > 0.95


def test_draws_are_the_same_unless_they_are_asked_to_be_new():
    z, s, _ = rows(60, 2)
    fixed, fresh = RecoveredVariance(5), RecoveredVariance(5, seed=None)
    assert fixed(z, s) == fixed(z, s)
    torch.manual_seed(0)
    one, other = fresh(z, s), fresh(z, s)
    torch.manual_seed(0)
    assert one != other
    assert fresh(z, s) == one
    kept = fresh.calibrate(z, s, torch.Generator().manual_seed(1))
    assert kept(z, s) == kept(z, s)
    of_s = fresh.calibrate(z, s, torch.Generator().manual_seed(1), side="s")
    assert of_s(z, s) != of_s(z, s)
    orders = torch.stack([torch.arange(60)] * 2)
    assert len(fresh.permuted(z, s, orders).unique()) == 1


def test_fixed_ranks_are_those_of_the_shares_calibration():
    z, s, _ = rows(400, 2)
    measure = RecoveredVariance(5).calibrate(z, s, freeze=True)
    assert measure(z, s).item() == pytest.approx(RecoveredVariance(5)(z, s).item(), rel=1e-9)
    part = torch.arange(50)
    assert measure(z[part], s[part]).item() != pytest.approx(RecoveredVariance(5)(z[part], s[part]).item())


def test_few_rows_for_the_columns_are_refused_by_what_the_caller_can_change():
    z, s, _ = rows(5, 4)
    with pytest.raises(ValueError, match=r"^'z' must have at least 6 rows.* Got 5\. Use a larger batch"):
        RecoveredVariance()(z, s)


def test_an_outlier_of_s_does_not_matter():
    z, s, _ = rows(60, 2)
    far = s.clone()
    far[s.argmax()] = 1e12
    assert RecoveredVariance()(z, far).item() == pytest.approx(RecoveredVariance()(z, s).item(), rel=1e-9)


# -- the gradient with the regression held ----------------------------------------------------------------


def test_the_gradient_of_a_held_regression_moves_each_row_along_the_coefficients_of_the_others():
    z, s, _ = rows(12, 2)
    measure = RecoveredVariance(3, degree=2, ridge=0.1, exact_gradient=False)
    F, T = measure._features(z, None).requires_grad_(), measure.targets(Sensitive.of(s), None)
    w = torch.full((12,), 1 / 12, dtype=torch.float64)
    (found,) = torch.autograd.grad(measure._recovered(F, T, w), F)
    X, Y = F.detach().numpy(), T.numpy()
    # A row that moves changes its own prediction and nothing else, by the derivative of naive predictions.
    by_chance = missed(X, Y, w.numpy(), 0.1) / (1.0 - measure._recovered(F, T, w).item())
    for i in range(12):
        others = np.arange(12) != i
        B, intercept = regress(X[others], Y[others], w.numpy()[others], 0.1)
        expected = 2.0 / 12 * (Y[i] - intercept - X[i] @ B) @ B.T / by_chance
        np.testing.assert_allclose(found[i].numpy(), expected, rtol=0.35, atol=2e-3)


def test_both_gradients_point_the_same_way_on_many_rows():
    z, s, _ = rows(2_000, 3)
    exact, held = (
        torch.autograd.grad(RecoveredVariance(40, exact_gradient=one)(x, s), x)[0]
        for one in (True, False)
        for x in (z.clone().requires_grad_(),)
    )
    cosine = (exact * held).sum() / (exact.norm() * held.norm())
    assert cosine > 0.95
    assert 0.8 < (held.norm() / exact.norm()).item() < 1.25
