"""Appendix "Necessity for Counterfactual Fairness" of the paper: S = U_S, X = f_X(S, U_X), Z = h(X).

U_X and U_S have finite supports, so that laws under interventions and observed laws are finite sums.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from frhsic import HSIC
from frhsic.datasets import make_scm, make_xor
from frhsic.kernels import Delta, Gaussian

MEASURE = HSIC(Gaussian(0.9), Gaussian(0.7))


@dataclass(frozen=True)
class Model:
    """Z = world(s, u) for every pair, ``(B, C)``, and the joint law of S and U_X, ``(B, C)``."""

    s: np.ndarray
    world: np.ndarray
    p: np.ndarray

    def counterfactual_change(self, head=lambda z: z):
        """E |f(Z_{S <- s'}) - f(Z)| over rows (s, u) and all s': zero exactly for counterfactual fairness."""
        f = head(self.world)
        return (np.abs(f[:, None] - f[None]) * self.p).sum() / len(self.s)

    def do(self, b):
        """P(Z_{S <- s_b} = z) for each value z: S is set, U_X keeps its law."""
        return self._law(self.world[b], self.p.sum(axis=0))

    def given(self, b):
        """P(Z = z | S = s_b)."""
        return self._law(self.world[b], self.p[b] / self.p[b].sum())

    @property
    def values(self):
        return np.unique(self.world)

    def _law(self, z, p):
        return np.array([p[z == value].sum() for value in self.values])

    def hsic(self, measure=MEASURE):
        """HSIC(Z, S) in the population: all pairs (s, u) with their probabilities."""
        rows = self.world.reshape(-1), np.repeat(self.s, self.world.shape[1]), self.p.reshape(-1)
        return measure(*(torch.tensor(x, dtype=torch.float64) for x in rows)).item()


def model(seed, h, confounded=False):
    """S with 4 and U_X with 5 values, Z = h(s, u); confounded: U_X and S have one random joint law."""
    rng = np.random.default_rng(seed)
    s, u = np.array([-1.0, -0.2, 0.6, 1.5]), np.array([-1.3, -0.4, 0.1, 0.8, 2.0])
    p = np.outer(rng.dirichlet(np.full(4, 5.0)), rng.dirichlet(np.full(5, 5.0)))
    if confounded:
        p = rng.dirichlet(np.ones(20)).reshape(4, 5)
    return Model(s, h(s[:, None], u[None] + 0.0 * s[:, None]), p)


ENCODERS = {
    "of u alone": lambda s, u: np.sin(2.0 * u),
    "constant": lambda s, u: 0.0 * u,
    "shifted by s": lambda s, u: u + 0.5 * s,
    "spread by s": lambda s, u: u * (1.0 + 0.3 * s),
    "at one s only": lambda s, u: np.where(s > 1.0, -u, u),
}
BLIND = ["of u alone", "constant"]


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("seed", range(3))
def test_counterfactual_fairness_implies_hsic_zero(seed, name):
    """Proposition "HSIC-fairness as a necessary condition": a change that is zero leaves HSIC no choice."""
    m = model(seed, ENCODERS[name])
    if name in BLIND:
        assert m.counterfactual_change() == 0.0
        assert abs(m.hsic()) < 1e-15
    else:
        assert m.counterfactual_change() > 0.05
        assert m.hsic() > 1e-4


@pytest.mark.parametrize("name", ENCODERS)
def test_intervening_matches_conditioning_when_s_is_exogenous(name):
    """The step of the proof: P(Z_{S <- s}) = P(Z | S = s) when U_X and U_S are independent."""
    m = model(3, ENCODERS[name])
    for b in range(4):
        assert m.do(b) == pytest.approx(m.given(b), abs=1e-15)


def test_necessity_needs_noise_that_is_independent_of_s():
    """With U_X and S confounded, seeing is not doing: Z = h(U_X) never changes with S, yet HSIC > 0."""
    m = model(4, ENCODERS["of u alone"], confounded=True)
    assert m.counterfactual_change() == 0.0
    assert max(np.abs(m.do(b) - m.given(b)).max() for b in range(4)) > 0.1
    assert m.hsic() > 1e-4


def test_necessity_needs_heads_that_tell_laws_apart():
    """A single head may be counterfactually fair, f(z) = z^2 for Z = sign(S) U, while HSIC(Z, S) > 0."""
    m = model(5, lambda s, u: np.sign(s) * np.abs(u))
    assert m.counterfactual_change(np.square) == 0.0
    assert m.counterfactual_change() > 0.1
    assert m.hsic() > 1e-3


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("seed", range(3))
def test_hsic_is_at_most_the_squared_counterfactual_change(seed, name):
    """The proposition away from zero, by its own proof: HSIC <= kappa_S (ell_Z E |Z_{S <- S'} - Z|)^2.

    S' is an independent copy of S: |mu_{Z | S} - mu_Z| <= E[|phi(Z_S) - phi(Z_{S'})| | S], and phi is
    Lipschitz with 1 / bandwidth; then Proposition "Decomposition of HSIC and its expected-MMD bound".
    """
    m = model(seed, ENCODERS[name])
    ps, pu = m.p.sum(axis=1), m.p.sum(axis=0)
    change = np.einsum("b,c,u,bcu->", ps, ps, pu, np.abs(m.world[:, None] - m.world[None]))
    assert m.hsic() <= (change / 0.9) ** 2 + 1e-15


def xor(share_s, share_u):
    """Z = S xor U_X with P(S = 1) and P(U_X = 1)."""
    coins = np.outer([1.0 - share_s, share_s], [1.0 - share_u, share_u])
    return Model(np.array([0.0, 1.0]), np.array([[0.0, 1.0], [1.0, 0.0]]), coins)


@pytest.mark.parametrize("share_s", [0.5, 0.1])
def test_xor_has_hsic_zero_and_changes_for_everybody(share_s):
    """The converse fails: Z = S xor U_X with a fair coin U_X. S need not be fair, as the paper has it."""
    m = xor(share_s, 0.5)
    assert abs(m.hsic()) < 1e-16
    assert (m.world[0] != m.world[1]).all()
    assert m.counterfactual_change() == pytest.approx(0.5)  # all of the rows, at the other of the two s'
    for b in range(2):
        assert m.given(b) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("share_s", [0.5, 0.1])
@pytest.mark.parametrize("share_u", [0.5, 0.4, 0.01])
def test_xor_with_an_unfair_coin_is_seen_by_hsic(share_s, share_u):
    """HSIC with Delta kernels is 4 (p (1 - p) (1 - 2 q))^2: the example stands on q = 1/2 alone."""
    exact = 4.0 * (share_s * (1.0 - share_s) * (1.0 - 2.0 * share_u)) ** 2
    assert xor(share_s, share_u).hsic(HSIC(Delta(), Delta())) == pytest.approx(exact, rel=1e-9, abs=1e-16)


def test_xor_changes_every_head_that_is_not_constant():
    """No head on the representation of the example is counterfactually fair, and all have zero mean gap."""
    m = xor(0.3, 0.5)
    for f0, f1 in itertools.product([-1.0, 0.0, 2.0], repeat=2):
        head = np.array([f0, f1])
        gaps = [head @ m.given(b) - head @ (0.7 * m.given(0) + 0.3 * m.given(1)) for b in range(2)]
        assert gaps == pytest.approx([0.0, 0.0], abs=1e-15)
        assert (m.counterfactual_change(lambda z, head=head: head[z.astype(int)]) == 0.0) == (f0 == f1)


@pytest.mark.parametrize("levels", [3, 7])
def test_sum_modulo_has_hsic_zero_and_changes_for_everybody(levels):
    """The same for S with many values: Z = S + U_X modulo their number, U_X uniform."""
    s = np.arange(float(levels))
    ps = np.random.default_rng(levels).dirichlet(np.ones(levels))
    world = (s[:, None] + s) % levels
    m = Model(s, world, np.outer(ps, np.full(levels, 1.0 / levels)))
    assert abs(m.hsic()) < 1e-15
    assert all((world[b] != world[c]).all() for b in range(levels) for c in range(b))


def score(z, s):
    """HSIC less its mean over re-pairings, in their deviations: within a few of zero at independence."""
    measure = HSIC(Gaussian(0.5), Gaussian(0.3), estimator="unbiased")
    z, s = torch.from_numpy(z), torch.from_numpy(s)
    rng = np.random.default_rng(0)
    null = measure.permuted(z, s, torch.from_numpy(np.stack([rng.permutation(len(z)) for _ in range(100)])))
    return ((measure(z, s) - null.mean()) / null.std()).item()


def test_columns_of_the_causal_task_follow_the_proposition():
    """make_scm: X2 is U_2 alone, unchanged and independent of S; X1 carries S and is seen."""
    scm = make_scm(1000, effect=1.0, random_state=0)
    change = np.abs(scm.counterfactual_data - scm.data).mean(axis=0)
    assert change[1] == 0.0
    assert change[0] > 0.2
    assert abs(score(scm.data[:, 1:], scm.sensitive_features)) < 4.0
    assert score(scm.data[:, :1], scm.sensitive_features) > 10.0
    none = make_scm(1000, effect=0.0, random_state=0)
    assert (none.counterfactual_data == none.data).all()
    assert abs(score(none.data[:, :1], none.sensitive_features)) < 4.0


@pytest.mark.parametrize("binary", [True, False])
def test_xor_task_changes_for_everybody_and_is_not_seen(binary):
    """make_xor: HSIC is at the level of chance for X and for U, each by itself."""
    task = make_xor(1000, binary=binary, random_state=0)
    assert (task.counterfactual_data != task.data).all()
    assert abs(score(task.data, task.sensitive_features)) < 4.0
    u = (task.data - task.sensitive_features) % (2 if binary else 1)
    assert abs(score(u, task.sensitive_features)) < 4.0
    assert score(np.hstack([task.data, u]), task.sensitive_features) > 10.0  # together they are S
