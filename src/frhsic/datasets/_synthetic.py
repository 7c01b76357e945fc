"""Synthetic tasks: the paper's, three kinds of dependence that simple measures miss, and causal models.

Every function returns a Bunch of float64 arrays: ``data`` (n, d), ``target`` (n,) or None,
``sensitive_features`` (n, 1), ``feature_names`` and ``DESCR``. ``random_state`` may be None, an int, a
``RandomState`` or a ``Generator``; an int seeds numpy's ``RandomState``, which is how the paper's scripts
drew their data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from frhsic._checks import ArgumentError

_Array = NDArray[np.float64]
RandomState = int | np.random.RandomState | np.random.Generator | None


def make_convergence(
    n_samples: int = 1000, *, correlation: float = 0.5, random_state: RandomState = None
) -> Bunch:
    """Draw the paper's convergence task: Z and S standard normal with a given correlation.

    Z ~ N(0, 1), S = rho Z + sqrt(1 - rho^2) e with e ~ N(0, 1). There is no target; ``data`` is Z itself.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows; the paper has 50 to 5,000, and 20,000 for its reference value.
    correlation : float, default=0.5
        rho, between -1 and 1.
    random_state : None, int, RandomState or Generator, default=None
        The published replication r is ``random_state=r``, its reference value 999.

    Returns
    -------
    Bunch
        ``data`` (n, 1), ``sensitive_features`` (n, 1), ``target`` None.

    Examples
    --------
    >>> task = make_convergence(2000, random_state=0)
    >>> round(float(np.corrcoef(task.data.T, task.sensitive_features.T)[0, 1]), 1)
    0.5
    """
    rng = _generator(n_samples, random_state)
    if not -1 <= correlation <= 1:
        raise ArgumentError("correlation", "be between -1 and 1", repr(correlation), "The paper has 0.5.")
    z = rng.normal(0, 1, n_samples)
    s = correlation * z + np.sqrt(1 - correlation**2) * rng.normal(0, 1, n_samples)
    return _bunch(z, s, None, "Z and S are standard normal with a given correlation.")


def make_classification(n_samples: int = 5000, *, random_state: RandomState = None) -> Bunch:
    """Draw the paper's classification task, which is its runtime and ablation task too.

    S ~ U(0, 1), X = (S + e1, e2) with e1 ~ N(0, 0.3^2), e2 ~ N(0, 1), and Y ~ Bernoulli(1 / (1 + exp(-X1))).

    Parameters
    ----------
    n_samples : int, default=5000
        Number of rows: 5,000 for classification and ablation (the first 4,000 train), 500 to 20,000 for
        runtime.
    random_state : None, int, RandomState or Generator, default=None
        42 draws the published rows (the scripts then round them to float32).

    Returns
    -------
    Bunch
        ``data`` (n, 2), ``target`` in {0, 1}, ``sensitive_features`` (n, 1).

    Examples
    --------
    >>> task = make_classification(random_state=42)
    >>> round(float(task.target[4000:].mean()), 3)  # the accuracy of a constant prediction, as published
    0.62
    """
    rng = _generator(n_samples, random_state)
    s = rng.uniform(0, 1, n_samples)
    x = np.column_stack([s + rng.normal(0, 0.3, n_samples), rng.normal(0, 1, n_samples)])
    y = rng.binomial(1, _logistic(x[:, 0]))
    return _bunch(x, s, y, "X1 = S + noise decides the label, X2 is noise.")


def make_u_shaped(n_samples: int = 1000, *, noise: float = 0.3, random_state: RandomState = None) -> Bunch:
    """Draw a feature whose mean is U-shaped in S: uncorrelated with S, and yet S shows.

    S ~ U(0, 1), X1 = 4 (2 S - 1)^2 - 4/3 + noise e1, X2 = e2, Y ~ Bernoulli(logistic(X1 + X2)).

    Parameters
    ----------
    n_samples : int, default=1000
    noise : float, default=0.3
        Standard deviation of X1 around the U.
    random_state : None, int, RandomState or Generator, default=None

    Returns
    -------
    Bunch
        ``data`` (n, 2), ``target`` in {0, 1}, ``sensitive_features`` (n, 1).

    Examples
    --------
    >>> task = make_u_shaped(20_000, random_state=0)
    >>> abs(float(np.corrcoef(task.data[:, 0], task.sensitive_features[:, 0])[0, 1])) < 0.02
    True
    """
    rng, s = _uniform(n_samples, noise, random_state)
    x1 = 4 * (2 * s - 1) ** 2 - 4 / 3 + noise * rng.normal(0, 1, n_samples)
    return _two_features(x1, s, rng, "The mean of X1 is U-shaped in S; their correlation is zero.")


def make_variance_only(
    n_samples: int = 1000, *, noise: float = 0.3, random_state: RandomState = None
) -> Bunch:
    """Draw a feature whose spread, but not whose mean, depends on S: every E[X | S = s] is zero.

    S ~ U(0, 1), X1 = (noise + 2 S) e1, X2 = e2, Y ~ Bernoulli(logistic(X1 + X2)). Measures of conditional
    means of X see nothing here (GDP of X1 is zero), HSIC does.

    Parameters
    ----------
    n_samples : int, default=1000
    noise : float, default=0.3
        Standard deviation of X1 at S = 0.
    random_state : None, int, RandomState or Generator, default=None

    Returns
    -------
    Bunch
        ``data`` (n, 2), ``target`` in {0, 1}, ``sensitive_features`` (n, 1).

    Examples
    --------
    >>> task = make_variance_only(20_000, random_state=0)
    >>> x, s = task.data[:, 0], task.sensitive_features[:, 0]
    >>> bool(x[s > 0.9].std() > 3 * x[s < 0.1].std())
    True
    """
    rng, s = _uniform(n_samples, noise, random_state)
    x1 = (noise + 2 * s) * rng.normal(0, 1, n_samples)
    return _two_features(x1, s, rng, "The spread of X1 grows with S; its mean does not depend on S.")


def make_sinusoidal(n_samples: int = 1000, *, frequency: int = 1, random_state: RandomState = None) -> Bunch:
    """Draw a feature and S with the joint density 1 + sin(w x) sin(w s), both uniform on their own.

    On [-pi, pi]^2 and divided by 4 pi^2, with w the ``frequency``: the larger it is, the finer the pattern
    and the harder it is to see. X2 = e2, Y ~ Bernoulli(logistic(X1 + X2)).

    Parameters
    ----------
    n_samples : int, default=1000
    frequency : int, default=1
        w, at least 1.
    random_state : None, int, RandomState or Generator, default=None

    Returns
    -------
    Bunch
        ``data`` (n, 2), ``target`` in {0, 1}, ``sensitive_features`` (n, 1).

    Examples
    --------
    >>> task = make_sinusoidal(20_000, frequency=3, random_state=0)
    >>> product = np.sin(3 * task.data[:, :1]) * np.sin(3 * task.sensitive_features)
    >>> round(float(product.mean()), 1)  # E[sin(w X) sin(w S)] = 1/4
    0.2
    """
    rng = _generator(n_samples, random_state)
    if frequency < 1 or frequency != int(frequency):
        fix = "Otherwise X and S would not be uniform."
        raise ArgumentError("frequency", "be a whole number from 1 on", repr(frequency), fix)
    s, x1 = (rng.uniform(-np.pi, np.pi, n_samples) for _ in range(2))
    # The density at -x is 1 - sin(w x) sin(w s): keeping x or turning its sign with these odds is exact.
    keep = rng.uniform(0, 1, n_samples) < (1 + np.sin(frequency * x1) * np.sin(frequency * s)) / 2
    x1 = np.where(keep, x1, -x1)
    return _two_features(x1, s, rng, "X1 and S have the joint density 1 + sin(w x) sin(w s).")


def make_scm(n_samples: int = 1000, *, effect: float = 1.0, random_state: RandomState = None) -> Bunch:
    """Draw from a structural causal model of the paper's form, with each row under another S as well.

    S = U_S ~ U(0, 1), X = (effect S + U_1, U_2) with U_1, U_2 ~ N(0, 1), Y = 1 if X1 + X2 + U_Y > effect / 2
    with U_Y ~ N(0, 1). The counterfactual rows keep the noise of their row and take an S' drawn anew: a
    prediction that uses X2 only is counterfactually fair, one that uses X1 is not unless ``effect`` is 0.

    Parameters
    ----------
    n_samples : int, default=1000
    effect : float, default=1.0
        Effect of S on X1.
    random_state : None, int, RandomState or Generator, default=None

    Returns
    -------
    Bunch
        ``data`` (n, 2), ``target`` in {0, 1} and ``sensitive_features`` (n, 1); the same rows under S <- S'
        in ``counterfactual_data``, ``counterfactual_target`` and ``counterfactual_sensitive_features``.

    Examples
    --------
    >>> scm = make_scm(100, effect=2.0, random_state=0)
    >>> change = scm.counterfactual_data - scm.data
    >>> shift = scm.counterfactual_sensitive_features - scm.sensitive_features
    >>> bool(np.allclose(change, np.hstack([2 * shift, 0 * shift])))
    True
    """
    rng = _generator(n_samples, random_state)
    s, other = rng.uniform(0, 1, n_samples), rng.uniform(0, 1, n_samples)
    u = rng.normal(0, 1, (n_samples, 2))
    u_y = rng.normal(0, 1, n_samples)

    def world(s: _Array) -> tuple[_Array, _Array]:
        x = u + effect * np.column_stack([s, np.zeros_like(s)])
        return x, (x.sum(axis=1) + u_y > effect / 2).astype(np.float64)

    return _with_counterfactual(world, s, other, "X1 = effect S + U1, X2 = U2.")


def make_xor(n_samples: int = 1000, *, binary: bool = True, random_state: RandomState = None) -> Bunch:
    """Draw the paper's example of a feature that is independent of S but not counterfactually fair.

    S and U are fair coins, X = S xor U and Y = X. X is independent of S, so HSIC(X, S) = 0, yet X changes
    for everybody under S <- 1 - S. With ``binary=False`` the same for a continuous S: S, U ~ U(0, 1), X = (S
    + U) mod 1, Y = 1 if X > 1/2, S' ~ U(0, 1).

    Parameters
    ----------
    n_samples : int, default=1000
    binary : bool, default=True
        Coins, or uniform numbers.
    random_state : None, int, RandomState or Generator, default=None

    Returns
    -------
    Bunch
        As of :func:`make_scm`, with ``data`` (n, 1).

    Examples
    --------
    >>> xor = make_xor(10_000, random_state=0)
    >>> x, s = xor.data[:, 0], xor.sensitive_features[:, 0]
    >>> round(float(x[s == 0].mean()), 1), round(float(x[s == 1].mean()), 1)
    (0.5, 0.5)
    >>> bool((xor.counterfactual_data != xor.data).all())
    True
    """
    rng = _generator(n_samples, random_state)
    if binary:
        s, u = (rng.binomial(1, 0.5, n_samples).astype(np.float64) for _ in range(2))
        other, modulus = 1 - s, 2
    else:
        s, u, other = (rng.uniform(0, 1, n_samples) for _ in range(3))
        modulus = 1

    def world(s: _Array) -> tuple[_Array, _Array]:
        x = (s + u) % modulus
        return x[:, None], (x > 0.5).astype(np.float64)

    return _with_counterfactual(world, s, other, "X = S xor U (or S + U modulo 1).")


def _generator(n_samples: int, random_state: RandomState) -> Any:
    if n_samples < 1:
        raise ArgumentError("n_samples", "be at least 1", repr(n_samples), "Ask for one row or more.")
    must = "be None, an int, a RandomState or a Generator"
    if random_state is None:
        return np.random.default_rng()
    if isinstance(random_state, np.random.RandomState | np.random.Generator):
        return random_state
    if isinstance(random_state, int | np.integer):
        return np.random.RandomState(random_state)
    raise ArgumentError("random_state", must, type(random_state).__name__, "Pass an int for repeatable data.")


def _uniform(n_samples: int, noise: float, random_state: RandomState) -> tuple[Any, _Array]:
    rng = _generator(n_samples, random_state)
    if not noise > 0:
        raise ArgumentError("noise", "be above 0", repr(noise), "Use a small number for little noise.")
    return rng, rng.uniform(0, 1, n_samples)


def _logistic(x: _Array) -> _Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _two_features(x1: _Array, s: _Array, rng: Any, description: str) -> Bunch:
    x2 = rng.normal(0, 1, len(s))
    return _bunch(np.column_stack([x1, x2]), s, rng.binomial(1, _logistic(x1 + x2)), description)


def _bunch(x: _Array, s: _Array, y: _Array | None, description: str) -> Bunch:
    x = x.reshape(len(s), -1)
    return Bunch(
        data=x,
        target=None if y is None else np.asarray(y, dtype=np.float64),
        sensitive_features=s[:, None],
        feature_names=[f"x{j + 1}" for j in range(x.shape[1])],
        DESCR=f"Synthetic data. {description}\n",
    )


def _with_counterfactual(
    world: Callable[[_Array], tuple[_Array, _Array]], s: _Array, other: _Array, description: str
) -> Bunch:
    x, y = world(s)
    bunch = _bunch(x, s, y, description)
    bunch.counterfactual_data, bunch.counterfactual_target = world(other)
    bunch.counterfactual_sensitive_features = other[:, None]
    return bunch
