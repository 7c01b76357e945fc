"""Certificates: what a sample proves about the dependence of z on s, for whom, and when it proves nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from frhsic._text import number
from frhsic.data import to_generator
from frhsic.dependence import HSIC
from frhsic.inference._embedding import embedding
from frhsic.inference._moments import moments
from frhsic.inference._results import Kind, Result, frame
from frhsic.inference._strata import Stratum
from frhsic.inference.bounds._complexity import TrainedOn, uniform_bound
from frhsic.inference.bounds._worst_case import (
    MOST_ROWS,
    Fixed,
    HeadRow,
    Spectrum,
    centred_gram,
    directions,
    drawn_rows,
    few_rows,
    fixed_rows,
    head_rows,
    refuse_no_directions,
    resolution,
)
from frhsic.kernels import Kernel
from frhsic.numerics._lowrank import complete_map
from frhsic.numerics._tiles import TILE, tiled_hsic

if TYPE_CHECKING:
    import pandas as pd

_DRAWS = 1_000
# Up to so many rows all pairs are visited; above, one pass over features if so many of them are enough.
_PAIRS, _WIDEST = 20_000, 256
# A number of rows that nobody has.
_MOST = 10**15


@dataclass(frozen=True)
class Bound(Result):
    """One bound: a number, what it certifies and for whom, and when it says nothing.

    Attributes
    ----------
    name : str
    value : float
    kind : {"finite-sample", "asymptotic", "in-sample", "estimate"}
        Whether it holds with the stated probability for every n, for large n, for certain but only about
        these rows, or is an estimate and no bound.
    certifies : str
        One sentence.
    vacuous : bool
        Whether it says nothing here.
    vacuous_when : str
        One sentence.
    n_needed : int or None
        The least number of rows at which it would say something, were the HSIC the one observed here; None
        when no number would do, or when the bound is about these rows and more of them do not sharpen it.
    """

    name: str
    value: float
    kind: Kind
    certifies: str
    vacuous: bool
    vacuous_when: str
    n_needed: int | None = None

    def __str__(self) -> str:
        needed = "" if self.n_needed is None else f", stops being so at n = {self.n_needed:,}"
        says = f" Vacuous here{needed}: {self.vacuous_when}" if self.vacuous else ""
        return f"{self.name} ({self.kind}): {number(self.value)}. {self.certifies}{says}"


@dataclass(frozen=True)
class Certificate(Result):
    """Every bound on the dependence of z on s that these rows support.

    Attributes
    ----------
    n : int
        Rows certified, or groups of them where ``groups`` were passed.
    delta : float
        Each bound that is not in-sample fails with at most this probability; not all of them together.
    hsic : float
        The biased HSIC on these rows.
    bounds : tuple of Bound
    heads : tuple of HeadRow
        The worst head and the paper's bound at each resolution m.
    attributes : tuple of str
        The columns of s, taken jointly.
    notes : tuple of str
    """

    n: int
    delta: float
    hsic: float
    bounds: tuple[Bound, ...]
    heads: tuple[HeadRow, ...]
    attributes: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def bound(self, name: str) -> Bound:
        """Return the bound of that name."""
        for bound in self.bounds:
            if bound.name == name:
                return bound
        raise ValueError(
            f"'name' must be a bound of this certificate. Got {name!r}. "
            f"Take one of {', '.join(bound.name for bound in self.bounds)}."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each bound."""
        # Whole numbers with gaps: without the type they would become floats.
        return frame(bound.to_dict() for bound in self.bounds).astype({"n_needed": "Int64"})

    def heads_frame(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each resolution m."""
        return frame(row.to_dict() for row in self.heads)

    def __str__(self) -> str:
        lines = [
            f"Dependence on {' and '.join(self.attributes)}: biased HSIC {number(self.hsic)} on {self.n:,} "
            f"rows; bounds at delta = {self.delta:g}, each by itself."
        ]
        for bound in self.bounds:
            needed = "" if bound.n_needed is None else f", until n = {bound.n_needed:,}"
            state = f" - vacuous{needed}" if bound.vacuous else ""
            lines.append(f"  {bound.name} ({bound.kind}): {number(bound.value)}{state}")
        return "\n".join((*lines, *self.notes))


def certify(
    z: object,
    s: object,
    *,
    dependence: HSIC | None = None,
    delta: float = 0.05,
    n_permutations: int = 199,
    random_state: object = None,
    ridge_z: float = 0.01,
    ridge_s: float = 0.01,
    train: TrainedOn | None = None,
    max_rows: int = MOST_ROWS,
    groups: object = None,
) -> Certificate:
    """Return what these rows prove about the dependence of z on s, and what they do not.

    The rows must not have been used for training, nor to choose the bandwidths.

    ``population``
        With probability 1 - delta, for kernels with k >= 0 and k(x, x) = 1,
        sqrt(HSIC) <= n / (n - 1) sqrt(HSIC_b) + sqrt(3 ln(1/delta) / n); the value is its square.
    ``population_asymptotic``
        sqrt(HSIC) <= sqrt(HSIC_b) + the 1 - delta quantile of the embedding's error, by multiplier bootstrap.
    ``head_gap``
        sqrt(HSIC_b / lambda_m), Theorem "Finite-sample control of the empirical demographic-parity gap".
    ``worst_head``, ``worst_head_crossfit``
        The largest gap of a head of norm one, exactly; and of the head of one half on the other.
    ``khgr``
        sqrt(HSIC_b / (ridge_z ridge_s)), Proposition "Regularized empirical sandwich bound".
    ``conditional_mmd``, ``conditional_mmd_lower``
        HSIC_b / lambda_m and HSIC_b / kappa_S, Theorem "Spectral equivalence of HSIC and the conditional MMD
        integral", on these rows.
    ``train_population``, ``train_test``, ``train_test_gap``
        With ``train``: HSIC_train + B_n, and the train-test bridge, for HSIC and for the gap of every head.

    Parameters
    ----------
    z : array, tensor or frame of shape (n, d)
        The representation or score, on held-out rows.
    s : array, tensor or frame of shape (n,) or (n, q)
    dependence : HSIC or None, default=None
        With numbers as bandwidths, fixed on other rows: ``HSIC().calibrate(z_other, s_other, freeze=True)``.
        None fixes them on a random tenth of these rows (20 to 500), which are left out.
    delta : float, default=0.05
    n_permutations : int, default=199
        For what chance alone gives the worst head.
    random_state : None, int or generator
    ridge_z, ridge_s : float, default=0.01
        Of the kernel HGR that ``khgr`` bounds.
    train : TrainedOn or None, default=None
    max_rows : int, default=5000
        Heads, gaps and the quantile of the asymptotic bound, which need Gram matrices, are computed on so
        many random rows; HSIC and the population's bound on all.
    groups : array of labels of shape (n,) or None, default=None
        Rows of one group (a person, a household) may depend on one another; groups are independent. ``n`` is
        then their number, and with q the sum of their squared shares of the rows ``population`` is the square
        of sqrt(HSIC_b) + q + sqrt(3 q ln(1/delta)). Bounds from ``train`` are not proved for groups.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> from frhsic.kernels import Gaussian
    >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    >>> fixed = HSIC(Gaussian(1.0), Gaussian(1.0))
    >>> print(certify(x[:, 0], x[:, 1], dependence=fixed, random_state=0).bound("population").n_needed)
    172
    """
    _check(delta, n_permutations, ridge_z, ridge_s, train, max_rows)
    generator = to_generator(random_state)
    if groups is not None and train is not None:
        raise ValueError(
            "'train' must be None with 'groups': its bounds are proved for independent rows. "
            f"Got {type(train).__name__}. Leave one of them out."
        )
    rows = fixed_rows(z, s, dependence, generator, groups)
    of_all = _thin_sums(rows) if len(rows.z) > _PAIRS else None
    if of_all is None:
        rows = drawn_rows(rows, _PAIRS, "All bounds are", generator)
    part = few_rows(rows, max_rows, generator)
    n, share = len(rows.z), None
    if rows.groups is not None:
        sizes = rows.groups.bincount().double()
        n, share = len(sizes), float(sizes.square().sum() / sizes.sum().square())
    K, L = centred_gram(part.kernel_z, part.z), centred_gram(part.kernel_s, part.s.values)
    sums = _sums(K, L)
    zs, zz, ss = of_all or (sums if len(part.z) == len(rows.z) else _tiled(rows))
    seen = _Seen(n, zs, math.sqrt(zz) * math.sqrt(ss), delta, share)
    spectrum = directions(part.kernel_s, part.s.values)
    refuse_no_directions(spectrum)
    heads = head_rows(part, K, spectrum, sums[0], n_permutations, generator)
    found = embedding(part.z, part.s, HSIC(part.kernel_z, part.kernel_s), generator, groups=part.groups)
    quantile = float(found.errors(_DRAWS, generator).quantile(1.0 - delta))
    notes = [*part.notes, *_remarks(part, spectrum)]
    if part.groups is not None:
        notes.append(
            f"n counts groups, of {len(rows.z):,} rows. What chance alone gives a head is that of permuted "
            "rows; of groups it is more."
        )
    bounds = []
    if rows.kernel_z.bound < math.inf and rows.kernel_s.bound < math.inf:
        bounds.append(_population(seen, rows.kernel_z, rows.kernel_s))
    else:
        notes.append(
            "A kernel is not bounded: there is no finite-sample bound on the population HSIC, and the "
            "asymptotic one needs finite moments."
        )
    bounds.append(_asymptotic(seen, quantile * math.sqrt(found.units / n)))
    m = resolution(spectrum)
    row = heads[m - 1]
    spread = math.sqrt(_largest_eigenvalue(K) / len(K))
    bounds += _gaps(row, spread)
    bounds.append(_khgr(seen.hsic, ridge_z, ridge_s))
    bounds += _conditional_mmd(
        part.kernel_s.bound, K, L, sums[0] / row.eigenvalue, spectrum.vectors[:, :m], seen
    )
    if train is not None:
        bounds += _trained(train, seen, rows, row, spread)
    return Certificate(
        n=n,
        delta=delta,
        hsic=seen.hsic,
        bounds=tuple(bounds),
        heads=heads,
        attributes=part.s.names,
        notes=tuple(notes),
    )


class _Seen(NamedTuple):
    """Rows or groups, HSIC_b, its Cauchy-Schwarz value sqrt(HSIC_b(Z, Z) HSIC_b(S, S)) and delta."""

    n: int
    hsic: float
    most: float
    delta: float
    share: float | None = None  # the sum of the squared shares of groups of rows


def population_bound(hsic: float, n: int, delta: float, scale: float = 1.0, constant: float = 3.0) -> float:
    """Return (n / (n - 1) sqrt(HSIC_b) + sqrt(constant scale ln(1/delta) / n))^2.

    The constant is 3 for kernels with k >= 0 and k(x, x) the same for all x, 32 for other bounded ones; scale
    is the product of the largest k(x, x) and l(s, s). Proof: docs/certificates.md.
    """
    root = n / (n - 1) * math.sqrt(hsic) + math.sqrt(constant * scale * math.log(1.0 / delta) / n)
    return root * root


def grouped_bound(
    hsic: float, share: float, delta: float, scale: float = 1.0, constant: float = 3.0
) -> float:
    """Return (sqrt(HSIC_b) + q sqrt(scale) + sqrt(constant scale q ln(1/delta)))^2 for groups of rows.

    q is the sum of the squared shares of the groups. Proof: docs/certificates.md.
    """
    error = share * math.sqrt(scale) + math.sqrt(constant * scale * share * math.log(1.0 / delta))
    return (math.sqrt(hsic) + error) ** 2


def _population(seen: _Seen, kernel_z: Kernel, kernel_s: Kernel) -> Bound:
    constant = 3.0 if kernel_z.is_standard and kernel_s.is_standard else 32.0
    scale = kernel_z.bound * kernel_s.bound

    def at(n: int) -> float:
        if seen.share is not None:  # more groups of the same kind
            return grouped_bound(seen.hsic, seen.share * seen.n / n, seen.delta, scale, constant)
        return population_bound(seen.hsic, n, seen.delta, scale, constant)

    return Bound(
        name="population",
        value=at(seen.n),
        kind="finite-sample",
        certifies=(
            f"With probability {1.0 - seen.delta:g} over these rows, the HSIC in the population they were "
            "drawn from, for these kernels, is at most this: for whoever uses z on new rows of the same law."
        ),
        vacuous=at(seen.n) >= seen.most,
        vacuous_when=_reaches_cauchy_schwarz(seen.most),
        n_needed=least_rows(at, seen.most),
    )


def _asymptotic(seen: _Seen, quantile: float) -> Bound:
    def at(n: int) -> float:
        return (math.sqrt(seen.hsic) + quantile * math.sqrt(seen.n / n)) ** 2

    return Bound(
        name="population_asymptotic",
        value=at(seen.n),
        kind="asymptotic",
        certifies=(
            f"With probability near {1.0 - seen.delta:g} for large n, the population HSIC for these kernels "
            "is at most this: for whoever uses z on new rows of the same law and can do without a guarantee "
            "at this n."
        ),
        vacuous=at(seen.n) >= seen.most,
        vacuous_when=_reaches_cauchy_schwarz(seen.most),
        n_needed=least_rows(at, seen.most),
    )


def _gaps(row: HeadRow, spread: float) -> list[Bound]:
    heads = f"every head of norm one in the RKHS of z, resolved on {row.m} directions of s"
    reaches = f"it reaches {number(spread)}, the largest standard deviation of such a head."
    bounds = [
        Bound(
            name="head_gap",
            value=row.paper_bound,
            kind="in-sample",
            certifies=(
                f"On these rows the GDP of {heads}, is at most this: for whoever trains such a head on z."
            ),
            vacuous=row.paper_bound >= spread,
            vacuous_when=f"It says nothing when {reaches} More rows do not help, less dependence does.",
        ),
        Bound(
            name="worst_head",
            value=row.worst_rms,
            kind="in-sample",
            certifies=(
                f"On these rows the GDP of {heads}, is at most this, and one head has a GDP of "
                f"{number(row.own_gdp)}: for whoever trains such a head on z. Chance alone gives "
                f"{number(row.null_mean)}, seldom above {number(row.null_high)}."
            ),
            vacuous=row.worst_rms >= spread,
            vacuous_when=f"It says nothing when {reaches}",
        ),
    ]
    if not math.isnan(row.crossfit_gdp):
        bounds.append(
            Bound(
                name="worst_head_crossfit",
                value=row.crossfit_gdp,
                kind="estimate",
                certifies=(
                    "It certifies nothing, but estimates the GDP that the worst head found on half of the "
                    "rows has on rows it has not seen: for whoever asks whether it is more than chance."
                ),
                vacuous=row.crossfit_gdp <= row.crossfit_null,
                vacuous_when=f"It says nothing at or below {number(row.crossfit_null)}, its mean by chance.",
            )
        )
    return bounds


def _khgr(hsic: float, ridge_z: float, ridge_s: float) -> Bound:
    value = math.sqrt(hsic / (ridge_z * ridge_s))
    return Bound(
        name="khgr",
        value=value,
        kind="in-sample",
        certifies=(
            f"On these rows the kernel HGR with ridges {ridge_z:g} and {ridge_s:g} is at most this: for "
            "whoever fears that some smooth function of z is correlated with some smooth function of s."
        ),
        vacuous=value >= 1.0,
        vacuous_when=(
            f"It says nothing unless HSIC_b is below ridge_z ridge_s = {number(ridge_z * ridge_s)}: a "
            "correlation is at most 1. More rows do not help, larger ridges do, for tamer functions."
        ),
    )


def _conditional_mmd(
    kappa: float, K: torch.Tensor, L: torch.Tensor, upper: float, E: torch.Tensor, seen: _Seen
) -> list[Bound]:
    n, m = E.shape
    exact = float((E * (K @ E)).sum()) / n
    total, trace_s = float(K.diagonal().sum()) / n, float(L.diagonal().sum()) / n
    bounds = [
        Bound(
            name="conditional_mmd",
            value=upper,
            kind="in-sample",
            certifies=(
                "On these rows the mean squared MMD between the law of z given s and that of z, resolved on "
                f"{m} directions of s, is at most this (it is {number(exact)}): for whoever asks what EIPM "
                "would say."
            ),
            vacuous=upper >= total,
            vacuous_when=(
                f"It says nothing when it reaches {number(total)}, the total variance of z in its RKHS. More "
                "rows do not help, less dependence does."
            ),
        )
    ]
    if kappa < math.inf:

        def chance(k: int) -> float:
            return total * trace_s / (k - 1)  # the mean of HSIC_b over all permutations, exactly

        bounds.append(
            Bound(
                name="conditional_mmd_lower",
                value=seen.hsic / kappa,
                kind="in-sample",
                certifies=(
                    "On these rows the mean squared MMD between the law of z given s and that of z is at "
                    "least this: for whoever would claim that z does not depend on s."
                ),
                vacuous=seen.hsic <= chance(seen.n),
                vacuous_when=(
                    f"It says nothing when HSIC_b is at most {number(chance(seen.n))}, its mean over all "
                    "permutations of s."
                ),
                n_needed=least_rows(chance, seen.hsic),
            )
        )
    return bounds


def _trained(train: TrainedOn, seen: _Seen, rows: Fixed, row: HeadRow, spread: float) -> list[Bound]:
    nu_z, nu_s = rows.kernel_z.bound, rows.kernel_s.bound
    if not (nu_z < math.inf and nu_s < math.inf):
        raise ValueError(
            f"'train' must come with bounded kernels. Got {rows.kernel_z!r} and {rows.kernel_s!r}. "
            "Use Gaussian kernels, or leave 'train' out."
        )
    lip_z, lip_s = rows.kernel_z.lipschitz, rows.kernel_s.lipschitz

    def deviation(n: int, delta: float, complexity: float) -> float:
        return uniform_bound(n, delta, nu_z, nu_s, lip_z, lip_s, complexity)

    def population(n: int) -> float:
        return train.hsic + deviation(n, seen.delta, train.complexity * math.sqrt(train.n / n))

    def bridge(n: int, n_test: int) -> float:
        learned = deviation(n, seen.delta / 2.0, train.complexity * math.sqrt(train.n / n))
        return train.hsic + learned + deviation(n_test, seen.delta / 2.0, 0.0)

    def gap(n: int, n_test: int) -> float:
        return math.sqrt(bridge(n, n_test) / row.eigenvalue)

    surely = f"With probability {1.0 - seen.delta:g}"
    counted = " The rows needed are those of the training sample, and as many to test on."
    reached = _reaches_cauchy_schwarz(seen.most)
    return [
        Bound(
            name="train_population",
            value=population(train.n),
            kind="finite-sample",
            certifies=(
                f"{surely} over the training rows, the population HSIC of the encoder learned on them, "
                "whichever of its class it is, is at most this: for whoever has no held-out rows."
            ),
            vacuous=population(train.n) >= seen.most,
            vacuous_when=reached,
            n_needed=least_rows(population, seen.most),
        ),
        Bound(
            name="train_test",
            value=bridge(train.n, seen.n),
            kind="finite-sample",
            certifies=(
                f"{surely} over training and test rows, HSIC_b of the learned encoder on {seen.n:,} new rows "
                "is at most this: for whoever has to promise it before they are seen."
            ),
            vacuous=bridge(train.n, seen.n) >= seen.most,
            vacuous_when=reached + counted,
            n_needed=least_rows(lambda n: bridge(n, n), seen.most),
        ),
        Bound(
            name="train_test_gap",
            value=gap(train.n, seen.n),
            kind="finite-sample",
            certifies=(
                f"{surely} over training and test rows, the GDP on the test rows of every head of norm one, "
                f"resolved on {row.m} directions of s, is at most this: for whoever trains a head on z later."
            ),
            vacuous=gap(train.n, seen.n) >= spread,
            vacuous_when=(
                f"It says nothing when it reaches {number(spread)}, the largest standard deviation of such a "
                f"head.{counted}"
            ),
            n_needed=least_rows(lambda n: gap(n, n), spread),
        ),
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


def _sums(K: torch.Tensor, L: torch.Tensor) -> tuple[float, float, float]:
    """Return HSIC_b of (z, s), (z, z) and (s, s) from K~ and L~."""
    n = len(K)
    zs, zz, ss = (max(float((A * B).sum()), 0.0) / n**2 for A, B in ((K, L), (K, K), (L, L)))
    return zs, zz, ss


def _tiled(rows: Fixed) -> tuple[float, float, float]:
    z, s = rows.z, rows.s.values
    kernel_z, kernel_s = rows.kernel_z.bind(z), rows.kernel_s.bind(s)
    zs, zz, ss = tiled_hsic(z, s, None, kernel_z, kernel_s, TILE, "biased", normalized=True)
    return max(float(zs), 0.0), max(float(zz), 0.0), max(float(ss), 0.0)


def _thin_sums(rows: Fixed) -> tuple[float, float, float] | None:
    """Return the same from thin factors of both Gram matrices, in one pass over rows, if there are such."""
    z, s = rows.z, rows.s.values
    of_z, of_s = (complete_map(k, x, _WIDEST) for k, x in ((rows.kernel_z, z), (rows.kernel_s, s)))
    if of_z is None or of_s is None:
        return None
    seen = moments([(of_z, of_s)], Stratum(z, rows.s, None, 1.0))
    zs, zz, ss = (float(C.square().sum()) for C in (seen.cross[0], seen.gram_z, seen.gram_s))
    return zs, zz, ss


def _largest_eigenvalue(K: torch.Tensor) -> float:
    """Return lambda_max of a positive matrix from below, by power iteration to six digits or so."""
    v = K[:, int(K.diagonal().argmax())].clone()
    size = 0.0
    for _ in range(200):
        norm = float(torch.linalg.vector_norm(v))
        if not norm > 0.0:
            return 0.0
        v = v / norm
        image = K @ v
        before, size, v = size, float(v @ image), image
        if abs(size - before) <= 1e-9 * size:
            break
    return size


def _remarks(part: Fixed, spectrum: Spectrum) -> list[str]:
    notes = []
    if spectrum.rank > len(spectrum.eigenvalues):
        notes.append(
            f"Of {spectrum.rank} directions of s the {len(spectrum.eigenvalues)} leading ones are looked at."
        )
    if not part.kernel_z.has_linear:
        notes.append(
            "A linear head is not in the RKHS of this kernel on z: only a kernel with a linear part, such as "
            "Gaussian(...) + Linear(), covers it."
        )
    return notes


def _check(
    delta: float,
    n_permutations: int,
    ridge_z: float,
    ridge_s: float,
    train: TrainedOn | None,
    max_rows: int,
) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"'delta' must lie between 0 and 1. Got {delta!r}. Take 0.05.")
    if not n_permutations >= 19:
        raise ValueError(
            f"'n_permutations' must be at least 19, for a 95 % quantile. Got {n_permutations!r}. Take 199."
        )
    if not max_rows >= 4:
        raise ValueError(f"'max_rows' must be at least 4. Got {max_rows!r}. Leave it out for 5,000.")
    for name, ridge in (("ridge_z", ridge_z), ("ridge_s", ridge_s)):
        if not 0 < ridge < math.inf:
            raise ValueError(f"'{name}' must be a positive number. Got {ridge!r}. Take 0.01 to start with.")
    if train is not None and not isinstance(train, TrainedOn):
        raise TypeError(
            f"'train' must be a TrainedOn or None. Got {type(train).__name__}. "
            "Pass TrainedOn(n, hsic, complexity)."
        )
