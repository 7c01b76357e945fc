"""The bounds of a certificate, each with what it certifies and when it says nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from frhsic._checks import ArgumentError
from frhsic._text import number
from frhsic.inference._results import Kind, Result
from frhsic.inference.bounds._complexity import TrainedOn, uniform_bound
from frhsic.inference.bounds._worst_case import Fixed, HeadRow
from frhsic.kernels import Kernel

# A number of rows that nobody has.
_MOST = 10**15


@dataclass(frozen=True)
class Bound(Result):
    """One bound: a number, what it certifies and for whom, and when it says nothing."""

    name: str
    value: float
    # Whether it holds with the stated probability for every n, for large n, for certain but only about these
    # rows, or is an estimate and no bound.
    kind: Kind
    certifies: str  # one sentence
    vacuous: bool  # whether it says nothing here
    vacuous_when: str  # one sentence
    # The least number of rows at which it would say something, were the HSIC the one observed here; None when
    # no number would do, or when the bound is about these rows and more of them do not sharpen it.
    n_needed: int | None = None

    def __str__(self) -> str:
        needed = "" if self.n_needed is None else f", stops being so at n = {self.n_needed:,}"
        says = f" Vacuous here{needed}: {self.vacuous_when}" if self.vacuous else ""
        return f"{self.name} ({self.kind}): {number(self.value)}. {self.certifies}{says}"


class Seen(NamedTuple):
    """Rows or groups, HSIC_b, its Cauchy-Schwarz value sqrt(HSIC_b(Z, Z) HSIC_b(S, S)) and delta."""

    n: int
    hsic: float
    most: float
    delta: float
    share: float | None = None  # the sum of the squared shares of groups of rows


def population_bound(hsic: float, n: int, delta: float, scale: float = 1.0, constant: float = 3.0) -> float:
    """Return (n / (n - 1) sqrt(HSIC_b) + sqrt(constant scale ln(1/delta) / n))^2.

    The constant is 3 for kernels with k >= 0 and k(x, x) the same for all x, 32 for other bounded ones; scale
    is the product of the largest k(x, x) and l(s, s). Proof: docs/explain/certificates.md.
    """
    root = n / (n - 1) * math.sqrt(hsic) + math.sqrt(constant * scale * math.log(1.0 / delta) / n)
    return root * root


def grouped_bound(
    hsic: float, share: float, delta: float, scale: float = 1.0, constant: float = 3.0
) -> float:
    """Return (sqrt(HSIC_b) + q sqrt(scale) + sqrt(constant scale q ln(1/delta)))^2 for groups of rows.

    q is the sum of the squared shares of the groups. Proof: docs/explain/certificates.md.
    """
    error = share * math.sqrt(scale) + math.sqrt(constant * scale * share * math.log(1.0 / delta))
    return (math.sqrt(hsic) + error) ** 2


def _bound(
    name: str,
    kind: Kind,
    value: float,
    limit: float,
    certifies: str,
    vacuous_when: str,
    at: Callable[[int], float] | None = None,
) -> Bound:
    """Return a bound that says nothing from the limit on; ``at`` is its value at other numbers of rows."""
    needed = None if at is None else least_rows(at, limit)
    return Bound(name, value, kind, certifies, value >= limit, vacuous_when, needed)


def bound_population(seen: Seen, kernel_z: Kernel, kernel_s: Kernel) -> Bound:
    constant = 3.0 if kernel_z.is_standard and kernel_s.is_standard else 32.0
    scale = kernel_z.bound * kernel_s.bound

    def at(n: int) -> float:
        if seen.share is not None:  # more groups of the same kind
            return grouped_bound(seen.hsic, seen.share * seen.n / n, seen.delta, scale, constant)
        return population_bound(seen.hsic, n, seen.delta, scale, constant)

    certifies = (
        f"With probability {1.0 - seen.delta:g} over these rows, the HSIC in the population they were drawn "
        "from, for these kernels, is at most this: for anyone who uses z on new rows of the same law."
    )
    reached = _reaches_cauchy_schwarz(seen.most)
    return _bound("population", "finite-sample", at(seen.n), seen.most, certifies, reached, at)


def bound_asymptotically(seen: Seen, quantile: float) -> Bound:
    """Return the bound on the HSIC of the population that holds for large n."""

    def at(n: int) -> float:
        return (math.sqrt(seen.hsic) + quantile * math.sqrt(seen.n / n)) ** 2

    certifies = (
        f"With probability near {1.0 - seen.delta:g} for large n, the population HSIC for these kernels is "
        "at most this: for anyone who uses z on new rows of the same law and can do without a guarantee at "
        "this n."
    )
    reached = _reaches_cauchy_schwarz(seen.most)
    return _bound("population_asymptotic", "asymptotic", at(seen.n), seen.most, certifies, reached, at)


def bound_gaps(row: HeadRow, spread: float) -> list[Bound]:
    """Return the bounds on the gaps of heads at one resolution."""
    holds = (
        f"On these rows the GDP of every head of norm one in the RKHS of z, resolved on {row.m} directions "
        "of s, is at most this"
    )
    who = "for anyone who trains such a head on z."
    worst = (
        f"{holds}, and one head has a GDP of {number(row.own_gdp)}: {who} Under independence: "
        f"{number(row.null_mean)} on average, 95% below {number(row.null_high)}."
    )
    when = f"It says nothing when it reaches {number(spread)}, the largest standard deviation of such a head."
    less = f"{when} More rows do not help, less dependence does."
    bounds = [
        _bound("head_gap", "in-sample", row.paper_bound, spread, f"{holds}: {who}", less),
        _bound("worst_head", "in-sample", row.worst_rms, spread, worst, when),
    ]
    if not math.isnan(row.crossfit_gdp):
        certifies = (
            "It certifies nothing, but estimates the GDP that the worst head found on half of the rows has "
            "on rows it has not seen: for anyone who asks whether it is more than chance."
        )
        when = f"It says nothing at or below {number(row.crossfit_null)}, its mean by chance."
        vacuous = row.crossfit_gdp <= row.crossfit_null
        bounds.append(Bound("worst_head_crossfit", row.crossfit_gdp, "estimate", certifies, vacuous, when))
    return bounds


def bound_khgr(hsic: float, ridge_z: float, ridge_s: float) -> Bound:
    certifies = (
        f"On these rows the kernel HGR with ridges {ridge_z:g} and {ridge_s:g} is at most this: for anyone "
        "who fears that some smooth function of z is correlated with some smooth function of s."
    )
    when = (
        f"It says nothing unless HSIC_b is below ridge_z ridge_s = {number(ridge_z * ridge_s)}: a "
        "correlation is at most 1. More rows do not help, larger ridges do, for tamer functions."
    )
    return _bound("khgr", "in-sample", math.sqrt(hsic / (ridge_z * ridge_s)), 1.0, certifies, when)


def bound_conditional_mmd(
    kappa: float, K: torch.Tensor, L: torch.Tensor, upper: float, E: torch.Tensor, seen: Seen
) -> list[Bound]:
    """Return the bounds on the mean squared MMD between the laws of z given s and of z."""
    n, m = E.shape
    exact = float((E * (K @ E)).sum()) / n
    total, trace_s = float(K.diagonal().sum()) / n, float(L.diagonal().sum()) / n
    distance = "On these rows the mean squared MMD between the law of z given s and that of z"
    certifies = (
        f"{distance}, resolved on {m} directions of s, is at most this (it is {number(exact)}): for anyone "
        "who asks what EIPM would say."
    )
    when = (
        f"It says nothing when it reaches {number(total)}, the total variance of z in its RKHS. More rows do "
        "not help, less dependence does."
    )
    bounds = [_bound("conditional_mmd", "in-sample", upper, total, certifies, when)]
    if kappa < math.inf:

        def chance(k: int) -> float:
            return total * trace_s / (k - 1)  # the mean of HSIC_b over all permutations, exactly

        certifies = f"{distance} is at least this: for anyone who would claim that z does not depend on s."
        mean = number(chance(seen.n))
        when = f"It says nothing when HSIC_b is at most {mean}, its mean over all permutations of s."
        lower, vacuous, needed = seen.hsic / kappa, seen.hsic <= chance(seen.n), least_rows(chance, seen.hsic)
        bounds.append(Bound("conditional_mmd_lower", lower, "in-sample", certifies, vacuous, when, needed))
    return bounds


def bound_from_training(
    train: TrainedOn, seen: Seen, rows: Fixed, row: HeadRow, spread: float
) -> list[Bound]:
    """Return the bounds of a learned encoder, by uniform concentration over its class."""
    nu_z, nu_s = rows.kernel_z.bound, rows.kernel_s.bound
    if not (nu_z < math.inf and nu_s < math.inf):
        got = f"{rows.kernel_z!r} and {rows.kernel_s!r}"
        fix = "Use Gaussian kernels, or leave 'train' out."
        raise ArgumentError("train", "come with bounded kernels", got, fix)
    lip_z, lip_s = rows.kernel_z.lipschitz, rows.kernel_s.lipschitz

    def deviation(n: int, delta: float, complexity: float) -> float:
        return uniform_bound(n, 1.0 - delta, nu_z, nu_s, lip_z, lip_s, complexity)

    def population(n: int) -> float:
        return train.hsic + deviation(n, seen.delta, train.complexity * math.sqrt(train.n / n))

    def bridge(n: int, n_test: int) -> float:
        learned = deviation(n, seen.delta / 2.0, train.complexity * math.sqrt(train.n / n))
        return train.hsic + learned + deviation(n_test, seen.delta / 2.0, 0.0)

    def gap(n: int, n_test: int) -> float:
        return math.sqrt(bridge(n, n_test) / row.eigenvalue)

    surely = f"With probability {1.0 - seen.delta:g} over"
    counted = " The rows needed are those of the training sample, and as many to test on."
    reached = _reaches_cauchy_schwarz(seen.most)
    learned = (
        f"{surely} the training rows, the population HSIC of the encoder learned on them, whichever of its "
        "class it is, is at most this: for anyone who has no held-out rows."
    )
    on_test = (
        f"{surely} training and test rows, HSIC_b of the learned encoder on {seen.n:,} new rows is at most "
        "this: for anyone who has to promise it before they are seen."
    )
    of_heads = (
        f"{surely} training and test rows, the GDP on the test rows of every head of norm one, resolved on "
        f"{row.m} directions of s, is at most this: for anyone who trains a head on z later."
    )
    when = (
        f"It says nothing when it reaches {number(spread)}, the largest standard deviation of such a head."
        f"{counted}"
    )
    kind: Kind = "finite-sample"
    value, gaps, most = bridge(train.n, seen.n), gap(train.n, seen.n), seen.most
    return [
        _bound("train_population", kind, population(train.n), most, learned, reached, population),
        _bound("train_test", kind, value, most, on_test, reached + counted, lambda n: bridge(n, n)),
        _bound("train_test_gap", kind, gaps, spread, of_heads, when, lambda n: gap(n, n)),
    ]


def least_rows(bound: Callable[[int], float], target: float) -> int | None:
    """Return the least n >= 2 at which a bound that falls with n is below the target, or None."""
    if not bound(_MOST) < target:
        return None
    low, high = 1, 2  # vacuous (or no sample) at low
    while not bound(high) < target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) < target else (middle, high)
    return high


def _reaches_cauchy_schwarz(most: float) -> str:
    return (
        f"It says nothing when it reaches {number(most)}, the Cauchy-Schwarz value on these rows, at which z "
        "may determine s."
    )
