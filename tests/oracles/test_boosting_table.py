"""The table of boosting against HSIC over all pairs of rows, written as loops and dense matrices."""

import numpy as np
import pytest
import torch

from frhsic.boosting._objective import Loss, TablePenalty, _slope
from frhsic.boosting._table import LEVELS, Table, Term
from frhsic.data import Sensitive, to_sensitive
from frhsic.dependence import HSIC
from frhsic.engine.rows import Rows
from frhsic.kernels import Energy, Gaussian, Kernel, Linear, OnRanks
from frhsic.numerics._cells import MeanCells
from frhsic.penalty import Penalty

KERNELS = (Linear(), Gaussian(0.3), Energy())


def sample(n=300, seed=0, values=12):
    """Return raw scores on levels (both ends taken), ages, weights of sum one."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, LEVELS, n)
    level[:2] = 0, LEVELS - 1
    t = torch.from_numpy(-2.0 + 4.0 * level / (LEVELS - 1))
    s = rng.integers(0, values, n) + np.round(3.0 * level / LEVELS)
    w = rng.uniform(0.5, 2.0, n)
    return t, Sensitive.of(torch.from_numpy(s)), torch.from_numpy(w / w.sum())


def make_table(s, w, kernel: Kernel, kernel_s: Kernel, *, weighted=True):
    cells = MeanCells.of(s, w)
    return Table(None, w.float() if weighted else None, cells, [Term.of(1.0, [kernel], kernel_s, cells)])


def naive_hsic(K, L, w):
    """Return sum_ij w_i w_j (K_ij - mean_i - mean_j + mean) L_ij, by loops over pairs."""
    n, total = len(w), 0.0
    row = [sum(w[j] * K[i][j] for j in range(n)) for i in range(n)]
    grand = sum(w[i] * row[i] for i in range(n))
    for i in range(n):
        for j in range(n):
            total += w[i] * w[j] * (K[i][j] - row[i] - row[j] + grand) * L[i][j]
    return total


def naive_chance(K, L, w):
    """Return the sum of the diagonal products under independence: (sum w^2)/(1 - sum w^2) E K~ E L~."""
    squares = float((w**2).sum())
    centred = [float(w @ (M.diagonal() - M @ w)) for M in (K, L)]
    return squares / (1.0 - squares) * centred[0] * centred[1]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("link", [torch.sigmoid, torch.clone], ids=["probability", "prediction"])
def test_table_has_the_hsic_of_all_pairs_where_scores_lie_on_levels(kernel, link):
    t, s, w = sample(n=60)
    found = make_table(s, w, kernel, Gaussian(2.0)).evaluate(t.float(), link, torch.ones_like)
    p = link(t)[:, None]
    K, L = kernel.gram(p, p).numpy(), Gaussian(2.0).gram(s.values, s.values).numpy()
    expected = naive_hsic(K, L, w.numpy()) - naive_chance(K, L, w.numpy())
    assert found.value == pytest.approx(expected, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_gradient_is_the_derivative_of_the_value(kernel):
    generator = torch.Generator().manual_seed(0)
    t, s, w = sample()
    t = t + (0.2 + 0.4 * torch.rand(len(t), generator=generator, dtype=torch.float64)) * 4.0 / LEVELS
    t = t.clamp(max=1.99)
    t[:2] = torch.tensor([-2.0, 2.0])
    table = make_table(s, w, kernel, Gaussian(2.0))
    found = table.evaluate(t.float(), torch.sigmoid, torch.ones_like)

    def value(x):
        _, _, T = table._count(x.float(), -2.0, 4.0 / (LEVELS - 1))
        C = T - T.sum(dim=1)[:, None] * table.cells.mass
        grid = torch.linspace(-2.0, 2.0, LEVELS, dtype=torch.float64).sigmoid()[:, None]
        side = C @ table.terms[0].v
        return float((side * (kernel.gram(grid, grid) @ side)).sum())

    for i in (5, 50, 200):
        ends = []
        for way in (1e-3, -1e-3):  # a row between two levels moves on a parabola
            moved = t.clone()
            moved[i] += way
            ends.append(value(moved))
        slope = (ends[0] - ends[1]) / 2e-3
        assert found.gradient[i].item() == pytest.approx(slope, rel=0.01, abs=2e-7)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_gradient_is_near_that_of_all_pairs_for_scores_between_levels(kernel):
    rng = np.random.default_rng(1)
    s = torch.from_numpy(rng.integers(20, 60, 400).astype(float))
    raw = (s / 20.0 - 2.0 + torch.from_numpy(rng.normal(size=400)))[:, None]
    y = torch.from_numpy((rng.random(400) < 0.4).astype(float))
    rows = Rows(torch.zeros(400, 0), y, Sensitive.of(s), None, None, y.long())
    penalty = Penalty(HSIC(kernel, Gaussian(5.0)), on="probability")
    found = TablePenalty(penalty, Loss.of(rows, 2), Sensitive.of(s), torch.ones(400), raw.float()).evaluate(
        raw.float(), curved=True
    )
    scores = raw.clone().requires_grad_()
    value = HSIC(kernel, Gaussian(5.0))(scores.sigmoid(), Sensitive.of(s))
    (exact,) = torch.autograd.grad(value, scores)
    assert torch.corrcoef(torch.stack([exact[:, 0], found.gradient[:, 0].double()]))[0, 1] > 0.999
    size = exact.norm()
    assert (found.gradient.double() - exact).norm() < 0.05 * size


def test_gradient_of_three_classes_is_near_that_of_all_pairs():
    rng = np.random.default_rng(2)
    s = torch.from_numpy(rng.integers(0, 30, 300).astype(float))
    raw = torch.from_numpy(rng.normal(size=(300, 3))) + torch.outer(
        s / 15.0 - 1.0, torch.tensor([1.0, 0.0, -1.0]).double()
    )
    y = torch.from_numpy(rng.integers(0, 3, 300).astype(float))
    rows = Rows(torch.zeros(300, 0), y, Sensitive.of(s), None, None, y.long())
    penalty = Penalty(HSIC(Gaussian(0.2), Gaussian(5.0)), on="probability")
    table = TablePenalty(penalty, Loss.of(rows, 3), Sensitive.of(s), torch.ones(300), raw.float())
    found = table.evaluate(raw.float(), curved=True)
    scores = raw.clone().requires_grad_()
    p = scores.softmax(dim=1)
    value = sum(HSIC(Gaussian(0.2), Gaussian(5.0))(p[:, c : c + 1], Sensitive.of(s)) for c in range(3))
    (exact,) = torch.autograd.grad(value, scores)
    assert (found.gradient.double() - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize("kernel", [Linear(), Gaussian(0.3)], ids=repr)
def test_curvature_is_the_largest_eigenvalue_of_the_dense_matrix(kernel):
    t, s, w = sample(n=200)
    t = t * 0.999
    t[:2] = torch.tensor([-2.0, 2.0])

    def slope(x):
        p = x.sigmoid()
        return p * (1.0 - p)

    table = make_table(s, w, kernel, Gaussian(2.0))
    for _ in range(20):  # the power iteration goes on from call to call
        found = table.evaluate(t.float(), torch.sigmoid, slope).curvature
    p = t.sigmoid().requires_grad_()
    h = slope(t)
    L = Gaussian(2.0).gram(s.values, s.values)
    left = L - (L @ w)[:, None]
    L = left - (w @ left)[None, :]
    # The mixed derivative of k at two probabilities, times those of the probabilities.
    if isinstance(kernel, Linear):
        mixed = torch.ones(200, 200, dtype=torch.float64)
    else:
        d = p.detach()[:, None] - p.detach()
        mixed = torch.exp(-0.5 * (d / 0.3) ** 2) * (1.0 - (d / 0.3) ** 2) / 0.3**2
    scale = (w / h).sqrt() * h
    dense = 2.0 * scale[:, None] * mixed * L * scale
    assert found == pytest.approx(torch.linalg.eigvalsh(dense)[-1].item(), rel=0.03)


def test_equal_weights_are_no_weights():
    t, s, w = sample()
    w = torch.full_like(w, 1.0 / len(w))
    both = [
        make_table(s, w, Gaussian(0.3), Gaussian(2.0), weighted=weighted).evaluate(
            t.float(), torch.sigmoid, torch.ones_like
        )
        for weighted in (True, False)
    ]
    assert both[0].value == pytest.approx(both[1].value, rel=1e-5)
    assert torch.allclose(both[0].gradient, both[1].gradient, rtol=1e-4, atol=1e-9)


def test_a_weight_of_two_is_the_row_twice():
    t, s, _ = sample(n=120)
    ones = torch.full((120,), 1.0 / 120, dtype=torch.float64)
    double = ones.clone()
    double[:40] *= 2.0
    twice = torch.cat([torch.arange(120), torch.arange(40)])
    alone = make_table(s, double / double.sum(), Linear(), Gaussian(2.0))
    copied = make_table(s[twice], torch.full((160,), 1.0 / 160, dtype=torch.float64), Linear(), Gaussian(2.0))
    a = alone.evaluate(t.float(), torch.clone, torch.ones_like)
    b = copied.evaluate(t[twice].float(), torch.clone, torch.ones_like)
    gradient = b.gradient[:40] + b.gradient[120:]
    assert torch.allclose(a.gradient[:40], gradient, rtol=1e-3, atol=1e-8)


def test_independence_has_no_value_on_average():
    rng = np.random.default_rng(0)
    values = []
    for _ in range(200):
        t = torch.from_numpy(rng.normal(size=150)).float()
        s = Sensitive.of(torch.from_numpy(rng.integers(0, 10, 150).astype(float)))
        w = torch.full((150,), 1.0 / 150, dtype=torch.float64)
        table = make_table(s, w, Gaussian(0.3), Gaussian(2.0), weighted=False)
        values.append(table.evaluate(t, torch.sigmoid, torch.ones_like).value)
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values)) < 3.5 * error


def test_cells_of_joint_columns_hold_every_combination():
    rng = np.random.default_rng(0)
    s = to_sensitive({"age": rng.integers(20, 70, 2_000), "sex": rng.choice(["f", "m"], 2_000)})
    w = torch.full((2_000,), 1.0 / 2_000, dtype=torch.float64)
    cells = MeanCells.of(s, w)
    assert len(cells.mass) == 100
    assert cells.mass.sum().item() == pytest.approx(1.0)
    # Each value by itself: the row that stands for a cell is every row in it.
    assert torch.equal(cells.middle.values[cells.code], s.values)


def test_a_heavy_tail_of_s_changes_nothing_on_ranks():
    rng = np.random.default_rng(0)
    t = torch.from_numpy(rng.normal(size=3_000)).float()
    u = torch.from_numpy(rng.normal(size=3_000)) + t
    w = torch.full((3_000,), 1.0 / 3_000, dtype=torch.float64)
    values = []
    for s in (u, torch.exp(5.0 * u)):
        kernel = OnRanks(Gaussian(0.1)).bind(s[:, None])
        table = make_table(Sensitive.of(s), w, Linear(), kernel)
        values.append(table.evaluate(t, torch.sigmoid, torch.ones_like).value)
    assert values[0] == pytest.approx(values[1], rel=0.01)


def test_scores_far_out_do_not_make_the_levels_coarse():
    t, s, w = sample()
    far = t.clone()
    far[7] = 500.0
    table = make_table(s, w, Gaussian(0.3), Gaussian(2.0))
    near = table.evaluate(t.float(), torch.sigmoid, torch.ones_like)
    found = table.evaluate(far.float(), torch.sigmoid, torch.ones_like)
    assert found.gradient[7] == 0.0
    assert found.value == pytest.approx(near.value, rel=0.2)


def test_a_constant_score_has_no_value_and_no_gradient():
    _, s, w = sample()
    found = make_table(s, w, Linear(), Gaussian(2.0)).evaluate(
        torch.full((300,), 0.7), torch.sigmoid, torch.ones_like
    )
    assert (found.value, found.curvature, found.gradient.abs().max().item()) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("classes", [0, 2, 3, 5])
def test_the_loss_has_the_derivatives_of_its_formula(classes):
    rng = np.random.default_rng(classes)
    n, k = 40, max(classes, 1) if classes > 2 else 1
    y = rng.normal(size=n) if classes == 0 else rng.integers(0, classes, n)
    w = torch.tensor(rng.random(n) + 0.5)
    raw = torch.tensor(rng.normal(size=(n, k)), requires_grad=True)
    target = torch.tensor(y)
    if classes == 0:
        loss = 0.5 * w @ (raw[:, 0] - target).square()
    elif classes == 2:
        loss = w @ torch.nn.functional.binary_cross_entropy_with_logits(
            raw[:, 0], target.double(), reduction="none"
        )
    else:
        loss = w @ torch.nn.functional.cross_entropy(raw, target, reduction="none")
    (expected,) = torch.autograd.grad(loss, raw)
    gradient, hessian = Loss(target.double(), w, classes).derivatives(raw.detach())
    torch.testing.assert_close(gradient, expected)
    p = raw.detach().softmax(dim=1) if classes > 2 else raw.detach().sigmoid()
    second = torch.ones_like(p) if classes == 0 else p * (1 - p)
    # As libraries have it: the diagonal, larger by k / (k - 1) for k classes.
    factor = classes / (classes - 1) if classes > 2 else 1.0
    torch.testing.assert_close(hessian, factor * second * w[:, None])


def test_the_slope_is_the_derivative_of_the_logistic_function():
    t = torch.linspace(-6.0, 6.0, 25, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(t.sigmoid().sum(), t)
    torch.testing.assert_close(_slope(t.detach()), expected)
