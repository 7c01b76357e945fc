"""What a budget is about: the excess over independence, and the multipliers, against loops and by hand."""

import math

import numpy as np
import pytest
import torch

import frhsic.dependence
from frhsic.data import Sensitive
from frhsic.dependence import EIPM, GDP, HSIC, Adversary, Dependence, DistanceCovariance
from frhsic.engine.budget import MOST, Multipliers, divide_by_budgets
from frhsic.kernels import Gaussian, Linear
from frhsic.penalty import Penalty, budget_penalty, default_penalty

CLOSE = {"rel": 1e-9, "abs": 1e-13}
MEASURES = {
    name: made
    for name in frhsic.dependence.__all__
    if issubclass(made := getattr(frhsic.dependence, name), Dependence)
    and name != "Dependence"
    and made.differentiable
}
VARIANTS = {name: made() for name, made in MEASURES.items()} | {
    "HSIC, linear": HSIC(Linear()),
    "HSIC, fixed bandwidth": HSIC(Gaussian(1.0)),
    "HSIC, unbiased": HSIC(estimator="unbiased"),
    "HSIC, whitened, normalised, unbiased": HSIC(
        Gaussian("scale-free", whiten=True), estimator="unbiased", normalized=True
    ),
    "HSIC, root": HSIC(root=True),
    "GDP, grid": GDP(0.2, weighting="grid", n_grid=8),
    "EIPM, fixed": EIPM(Gaussian(1.0), 0.5),
    "dCor, unbiased": DistanceCovariance(estimator="unbiased", normalized=True),
    "Adversary of bins": Adversary((4,), n_bins=3),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sample(n=40, *, seed=0, dependent=True):
    g = generator(seed)
    s = torch.randn(n, 1, dtype=torch.float64, generator=g)
    z = torch.randn(n, 3, dtype=torch.float64, generator=g) * torch.tensor([1.0, 3.0, 0.2]) + 5.0
    z[:, 0] += s[:, 0] ** 2 if dependent else 0.0
    return z, s


def ready(measure, z, s, on="representation"):
    """A penalty that can be evaluated; only an adversary needs rows for that."""
    penalty = Penalty(measure, on=on)
    if not isinstance(measure, Adversary):
        return penalty
    return penalty.calibrate(z, z, s, generator=generator(9), side="s", scale_free=True)


# -- the excess ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", [(), (2,)], ids=["a model", "a stack"])
@pytest.mark.parametrize("name", [name for name in VARIANTS if not name.startswith("Adversary")])
def test_beyond_chance_is_less_the_value_for_another_pairing_or_the_u_statistic(name, stack):
    z, s = sample()
    z = z + torch.randn(*stack, *z.shape, dtype=z.dtype, generator=generator(3))
    order = torch.randperm(len(s), generator=generator(4))
    measure = VARIANTS[name]
    found = measure.beyond_chance(z, s, order)
    if isinstance(measure, HSIC | DistanceCovariance) and not measure.root:
        expected = measure._with(estimator="unbiased")(z, s)
    else:
        expected = measure(z, s) - measure(z, s[order])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("measure", [HSIC(), DistanceCovariance()], ids=["HSIC", "dCov"])
def test_weights_travel_with_s_beyond_chance(measure):
    z, s = sample()
    w = torch.rand(len(s), dtype=torch.float64, generator=generator(5))
    w[3] = 0.0
    order = torch.randperm(len(s), generator=generator(4))
    expected = measure(z, s, w) - measure(z, s[order], w[order])
    assert measure.beyond_chance(z, s, order, w).item() == pytest.approx(expected.item(), **CLOSE)


@pytest.mark.parametrize("on", ["representation", "prediction"])
@pytest.mark.parametrize("name", VARIANTS)
def test_no_factor_of_z_changes_the_excess(name, on):
    z, s = sample()
    penalty = ready(VARIANTS[name], z, s, on)
    one, small, large = (
        penalty.excess(c * z, c * z, s, None, None, generator(1)).total.item() for c in (1.0, 0.01, 1e4)
    )
    assert small == pytest.approx(one, rel=1e-7, abs=1e-12)
    assert large == pytest.approx(one, rel=1e-7, abs=1e-12)
    assert one != 0.0


def test_a_factor_of_z_changes_the_penalty_itself():
    """So that the claim above is one."""
    z, s = sample()
    for measure in (HSIC(Gaussian(1.0)), HSIC(Linear()), GDP(), EIPM(Gaussian(1.0), 0.5)):
        one, small = (Penalty(measure)(c * z, None, s).item() for c in (1.0, 0.01))
        assert abs(small / one - 1.0) > 0.1


@pytest.mark.parametrize("name", [name for name in VARIANTS if "Adversary" not in name])
def test_the_excess_of_independent_rows_has_mean_zero(name):
    measure = VARIANTS[name]
    penalty, rounds = Penalty(measure), 150
    found, plain = [], []
    for seed in range(rounds):
        z, s = sample(24, seed=seed, dependent=False)
        found.append(penalty.excess(z, None, s, None, None, generator(seed)).total.item())
        plain.append(penalty(z, None, s).item())
    error = np.std(found) / math.sqrt(rounds)
    assert error > 0
    assert abs(np.mean(found)) < 4.0 * error
    # Without its correction a measure that is not debiased stands out; a debiased one is as it was.
    if measure.debiased:
        assert abs(np.mean(plain)) < 4.0 * np.std(plain) / math.sqrt(rounds)
    else:
        assert np.mean(plain) > 8.0 * np.std(plain) / math.sqrt(rounds)


def test_weights_that_follow_s_leave_no_excess_of_independent_rows():
    penalty, rounds, found = Penalty(HSIC(normalized=True)), 150, []
    for seed in range(rounds):
        z, s = sample(40, seed=seed, dependent=False)
        w = torch.where(s.reshape(len(z), -1)[:, 0] > s.median(), 20.0, 1.0)
        found.append(penalty.excess(z, None, s, None, w, generator(seed)).total.item())
    assert abs(np.mean(found)) < 4.0 * np.std(found) / math.sqrt(rounds)


def test_an_adversary_that_knows_nothing_has_no_excess():
    z, s = sample(dependent=False)
    for measure in (Adversary((4,)), Adversary((4,), n_bins=3)):
        assert measure.debiased
        penalty = ready(measure, z, s - s.mean())
        with torch.no_grad():
            for parameter in penalty.parameters():
                parameter.zero_()
        found = penalty.excess(z, None, s - s.mean(), None, None, generator()).total.item()
        assert found == pytest.approx(0.0, abs=2e-3)  # bins of 40 rows are not all of one size


def naive_unit(z):
    """Rows over the root of the sum of the variances of their columns."""
    n, d = z.shape
    total = 0.0
    for k in range(d):
        mean = sum(z[i, k] for i in range(n)) / n
        total += sum((z[i, k] - mean) ** 2 for i in range(n)) / n
    return z / math.sqrt(total)


def naive_root(z, s, w=None):
    """The root of the trace formula with fixed Gaussian kernels, by loops."""
    n = len(z)
    w = np.full(n, 1.0 / n) if w is None else w / w.sum()
    K = np.array([[math.exp(-((a - b) ** 2).sum() / 2) for b in z] for a in z])
    L = np.array([[math.exp(-((a - b) ** 2).sum() / 2) for b in s] for a in s])
    K = K - (K @ w)[:, None] - (w @ K)[None] + w @ K @ w
    return math.sqrt(sum(w[i] * w[j] * K[i, j] * L[i, j] for i in range(n) for j in range(n)))


BIASED = HSIC(Gaussian(1.0), Gaussian(1.0), root=True)  # has no U-statistic


@pytest.mark.parametrize("weighted", [False, True])
def test_the_excess_is_the_value_less_that_of_a_random_pairing(weighted):
    z, s = sample()
    w = 0.1 + torch.rand(len(z), dtype=torch.float64, generator=generator(3)) if weighted else None
    found = Penalty(BIASED).excess(z, None, s, None, w, generator(5)).total.item()
    order = torch.randperm(len(z), generator=generator(5)).numpy()
    x, t = naive_unit(z.numpy()), s.numpy()
    p = None if w is None else w.numpy()
    expected = naive_root(x, t, p) - naive_root(x, t[order], None if p is None else p[order])
    assert found == pytest.approx(expected, **CLOSE)
    assert abs(expected - naive_root(x, t, p)) > 1e-4


def test_the_excess_of_a_debiased_measure_is_its_value_for_z_of_unit_spread():
    z, s = sample()
    measure = HSIC(Gaussian(1.0), Gaussian(1.0), estimator="unbiased")
    found = Penalty(measure).excess(z, None, s, None, None, generator(5)).total.item()
    assert found == pytest.approx(measure(torch.from_numpy(naive_unit(z.numpy())), s).item(), **CLOSE)


def test_the_excess_on_probabilities_leaves_them_as_they_are():
    z, s = sample()
    logits = z[:, :1] - 5.0
    penalty = Penalty(BIASED, on="probability")
    found = penalty.excess(None, logits, s, None, None, generator(5)).total.item()
    order = torch.randperm(len(z), generator=generator(5)).numpy()
    p = 1.0 / (1.0 + np.exp(-logits.numpy()))
    assert found == pytest.approx(naive_root(p, s.numpy()) - naive_root(p, s.numpy()[order]), **CLOSE)


def test_rows_are_paired_anew_within_their_level_of_y():
    """Each level has a permutation of its own, in the order of the levels; the spread is that of all rows."""
    z, s = sample(60)
    y = torch.tensor([0.0, 1.0, 1.0]).repeat(20)
    s = s + 10.0 * y[:, None]  # a pairing across levels would be seen
    value = Penalty(BIASED, given="y").excess(z, None, s, y, None, generator(5))
    g, x, expected = generator(5), naive_unit(z.numpy()), []
    for level in (0.0, 1.0):
        rows = [i for i in range(60) if y[i] == level]
        order = torch.randperm(len(rows), generator=g).numpy()
        a, b = x[rows], s.numpy()[rows]
        expected.append(naive_root(a, b) - naive_root(a, b[order]))
    np.testing.assert_allclose([float(v) for v in value.values], expected, rtol=1e-9)
    assert value.total.item() == pytest.approx(sum(expected) / 2, **CLOSE)


def test_terms_of_a_sum_have_their_own_excess_and_factor():
    z, s = sample()
    both = Penalty(BIASED) + 0.5 * Penalty(BIASED, on="prediction")
    value = both.excess(z, z[:, :1], s, None, None, generator(5))
    g, expected = generator(5), []
    for of in (z, z[:, :1]):
        order = torch.randperm(len(z), generator=g).numpy()
        x = naive_unit(of.numpy())
        expected.append(naive_root(x, s.numpy()) - naive_root(x, s.numpy()[order]))
    assert value.total.item() == pytest.approx(expected[0] + 0.5 * expected[1], **CLOSE)


def test_the_excess_of_a_stack_is_that_of_each_model_with_one_pairing():
    z, s = sample()
    stack = torch.stack([z, 0.3 * z.flip(0), z.exp()])
    found = Penalty(BIASED).excess(stack, None, s, None, None, generator(5)).total
    each = [Penalty(BIASED).excess(x, None, s, None, None, generator(5)).total for x in stack]
    torch.testing.assert_close(found, torch.stack(each), rtol=1e-9, atol=1e-13)


def test_a_constant_z_has_no_excess_and_finite_gradients():
    _, s = sample()
    for c in (0.0, 3.0, 0.1):
        z = torch.full((40, 2), c, dtype=torch.float64, requires_grad=True)
        total = default_penalty().excess(z, z, s, None, None, generator()).total
        total.backward()
        assert abs(total.item()) < 1e-12
        assert bool(torch.isfinite(z.grad).all())


def test_the_gradient_of_the_excess_does_not_shrink_z():
    """A value that no factor changes has a gradient without a part along z (centred, for the spread is)."""
    z, s = sample()
    x = (z - z.mean(dim=0)).requires_grad_()
    Penalty(BIASED).excess(x, None, s, None, None, generator(5)).total.backward()
    along = (x.grad * x.detach()).sum() / (x.grad.norm() * x.detach().norm())
    assert abs(along.item()) < 1e-10
    assert x.grad.norm() > 1e-6


@pytest.mark.parametrize(("classes", "on"), [(True, "probability"), (False, "prediction")])
def test_the_penalty_of_a_budget_is_the_normalised_unbiased_hsic_of_the_score(classes, on):
    z, s = sample()
    penalty = budget_penalty(classes=classes)
    assert penalty.on == on
    logits = z[:, :1] - 5.0
    score = logits.sigmoid() if classes else logits
    expected = HSIC(Gaussian("scale-free"), estimator="unbiased", normalized=True)(score, s).item()
    assert penalty(None, logits, s).item() == pytest.approx(expected, rel=1e-12)
    assert penalty.excess(None, logits, s, None, None, generator()).total.item() == pytest.approx(
        expected, rel=1e-9
    )
    two = Sensitive(torch.cat([s, z[:, 1:2]], dim=1), ("a", "b"), ("continuous",) * 2)
    columns = budget_penalty("biased", ["a", "b"], classes=classes)
    measure = HSIC(Gaussian("scale-free"), normalized=True)
    each = sum(measure(score, two.columns([name])).item() for name in ("a", "b"))
    assert columns(None, logits, two).item() == pytest.approx(each, rel=1e-12)


# -- the multipliers -----------------------------------------------------------------------------------


class ByBudgets(Multipliers):
    """Multipliers that are told the dependence of each net, the unconstrained one first."""

    def __init__(self, budgets, steps, epochs, *, like):
        super().__init__([False] + [True] * len(budgets), steps, epochs, most=MOST, like=like)
        self.budgets = torch.tensor([1.0, *budgets], dtype=torch.float64)

    def update(self, dependence):
        super().update(*divide_by_budgets(dependence, self.budgets))


def by_hand(budgets, steps, history, start):
    """mu <- mu r^gamma, with r = D / (b D_0) within [1/e, e]; the weight is mu r, per b D_0."""
    gamma = min(0.5, 0.02 * steps)
    mu = [start] * len(budgets)
    weights = factors = [0.0] * len(budgets)
    for first, *others in history:
        weights, factors = [], []
        for k, (b, d) in enumerate(zip(budgets, others, strict=True)):
            limit = b * first if first > 0 else 1.0
            r = min(max(d / limit, 1.0 / math.e), math.e)
            mu[k] = min(max(mu[k] * r**gamma, 1e-6), 1e3)
            weights.append(mu[k] * r)
            factors.append(mu[k] * r / limit)
    return mu, weights, factors


@pytest.mark.parametrize("steps", [1, 10, 25, 400])
def test_multipliers_are_moved_as_by_hand(steps):
    budgets = [0.5, 0.1, 1.0]
    rng = np.random.default_rng(steps)
    history = [[0.3 * rng.uniform(0.8, 1.2), *rng.uniform(-0.02, 0.3, 3)] for _ in range(30)]
    multipliers = ByBudgets(budgets, steps, 9, like=torch.zeros(1, dtype=torch.float32))
    assert multipliers.values == [0.0] * 4
    start = multipliers.mu[1].item()
    assert multipliers.mu.tolist() == [start] * 4
    for row in history:
        multipliers.update(torch.tensor(row, dtype=torch.float64))
    mu, weights, factors = by_hand(budgets, steps, history, start)
    np.testing.assert_allclose(multipliers.mu[1:].numpy(), mu, rtol=1e-12)
    np.testing.assert_allclose(multipliers.values, [0.0, *weights], rtol=1e-12)
    assert multipliers.factors.dtype == torch.float32
    np.testing.assert_allclose(multipliers.factors.numpy(), [0.0, *factors], rtol=1e-6)


def test_multipliers_rise_above_the_budget_fall_below_it_and_rest_on_it():
    multipliers = ByBudgets([0.5, 0.5, 0.5], 10, 9, like=torch.zeros(1))
    start = multipliers.mu[1].item()
    for _ in range(5):
        multipliers.update(torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64))
    above, on, below = multipliers.mu[1:].tolist()
    assert above > on > below
    assert on == pytest.approx(start)


def test_multipliers_stay_within_bounds():
    multipliers = ByBudgets([0.1, 0.9], 10_000, 9, like=torch.zeros(1))
    for _ in range(200):
        multipliers.update(torch.tensor([1.0, 50.0, -1.0], dtype=torch.float64))
    np.testing.assert_allclose(multipliers.mu[1:].numpy(), [1e3, 1e-6], rtol=1e-12)


def test_without_dependence_to_share_multipliers_die_out():
    """D_0 at or below zero: no share of it is a limit; r is taken against one, far above what is there."""
    for first in (0.0, -0.01, math.nan):
        multipliers = ByBudgets([0.5], 20, 9, like=torch.zeros(1))
        for _ in range(40):
            multipliers.update(torch.tensor([first, 0.01], dtype=torch.float64))
        assert 0.0 < multipliers.values[1] < 1e-6
        assert math.isfinite(multipliers.factors[1].item())


def test_multipliers_go_back_to_a_state():
    one, other = (ByBudgets([0.5, 0.1], 10, 9, like=torch.zeros(1)) for _ in range(2))
    one.update(torch.tensor([0.4, 0.3, 0.2], dtype=torch.float64))
    other.restore(one.state())
    for multipliers in (one, other):
        multipliers.update(torch.tensor([0.4, 0.25, 0.1], dtype=torch.float64))
    assert one.values == other.values
    assert torch.equal(one.factors, other.factors)
    assert other.factors.dtype == torch.float32


def test_nothing_is_constrained_for_the_first_tenth_of_the_epochs():
    multipliers = ByBudgets([0.5], 10, 30, like=torch.zeros(1))
    for epoch in range(4):
        multipliers.update(torch.tensor([0.4, 0.4], dtype=torch.float64))
        assert (multipliers.values[1] > 0.0) == (epoch == 3)
