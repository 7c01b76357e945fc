"""Certificates: what a sample proves about the dependence of z on s, for whom, and when it proves nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from frhsic._checks import ArgumentError, check_confidence_level
from frhsic._text import number, percent
from frhsic.data import to_generator
from frhsic.dependence import HSIC
from frhsic.inference._embedding import embedding
from frhsic.inference._moments import moments
from frhsic.inference._results import Result, frame
from frhsic.inference._strata import Stratum
from frhsic.inference.bounds._bounds import (
    Bound,
    Seen,
    bound_asymptotically,
    bound_conditional_mmd,
    bound_from_training,
    bound_gaps,
    bound_khgr,
    bound_population,
)
from frhsic.inference.bounds._complexity import TrainedOn
from frhsic.inference.bounds._worst_case import (
    MOST_ROWS,
    Fixed,
    HeadRow,
    Spectrum,
    centred_gram,
    check_directions,
    directions,
    drawn_rows,
    few_rows,
    fixed_rows,
    head_rows,
    resolution,
)
from frhsic.numerics._lowrank import complete_map
from frhsic.numerics._threads import one_thread
from frhsic.numerics._tiles import TILE, tiled_hsic

if TYPE_CHECKING:
    import pandas as pd

_DRAWS = 1_000
# Above ``max_rows`` HSIC comes from one pass over features if so many of them are enough, and else from all
# pairs of so many random rows.
_WIDEST, _PAIRS = 256, 10_000


@dataclass(frozen=True)
class Certificate(Result):
    """Every bound on the dependence of z on s that these rows support.

    Attributes
    ----------
    n : int
        Rows certified, or groups of them where ``groups`` were passed.
    confidence_level : float
        Each bound that is not in-sample holds with at least this probability; not all of them together.
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
    confidence_level: float
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
        raise ArgumentError(
            "name",
            "be a bound of this certificate",
            repr(name),
            f"Take one of {', '.join(bound.name for bound in self.bounds)}.",
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
            f"rows; each bound by itself holds with {percent(self.confidence_level)} confidence."
        ]
        for bound in self.bounds:
            needed = "" if bound.n_needed is None else f", until n = {bound.n_needed:,}"
            state = f" - vacuous{needed}" if bound.vacuous else ""
            lines.append(f"  {bound.name} ({bound.kind}): {number(bound.value)}{state}")
        return "\n".join((*lines, *self.notes))


@one_thread()
def certify(
    z: object,
    s: object,
    *,
    dependence: HSIC | None = None,
    confidence_level: float = 0.95,
    n_permutations: int = 199,
    random_state: object = None,
    ridge_z: float = 0.01,
    ridge_s: float = 0.01,
    train: TrainedOn | None = None,
    max_rows: int = MOST_ROWS,
    groups: object = None,
) -> Certificate:
    """Return what these rows prove about the dependence of z on s, and what they do not.

    The rows must not have been used for training, nor to choose the bandwidths. With delta = 1 -
    confidence_level:

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
    confidence_level : float, default=0.95
        Of each bound by itself.
    n_permutations : int, default=199
        For the worst head under independence.
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
    _check(confidence_level, n_permutations, ridge_z, ridge_s, train, max_rows)
    generator = to_generator(random_state)
    if groups is not None and train is not None:
        raise ArgumentError(
            "train",
            "be None with 'groups': its bounds are proved for independent rows",
            type(train).__name__,
            "Leave one of them out.",
        )
    rows = fixed_rows(z, s, dependence, generator, groups)
    of_all = _thin_sums(rows) if len(rows.z) > min(max_rows, _PAIRS) else None
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
    seen = Seen(n, zs, math.sqrt(zz) * math.sqrt(ss), 1.0 - confidence_level, share)
    spectrum = directions(part.kernel_s, part.s.values)
    check_directions(spectrum)
    heads = head_rows(part, K, spectrum, sums[0], n_permutations, generator)
    found = embedding(part.z, part.s, HSIC(part.kernel_z, part.kernel_s), generator, groups=part.groups)
    quantile = float(found.errors(_DRAWS, generator).quantile(confidence_level))
    notes = [*part.notes, *_remarks(part, spectrum)]
    if part.groups is not None:
        notes.append(
            f"n counts groups, of {len(rows.z):,} rows. The value under independence is that of permuted "
            "rows; of groups it is more."
        )
    bounds = []
    if rows.kernel_z.bound < math.inf and rows.kernel_s.bound < math.inf:
        bounds.append(bound_population(seen, rows.kernel_z, rows.kernel_s))
    else:
        notes.append(
            "A kernel is not bounded: there is no finite-sample bound on the population HSIC, and the "
            "asymptotic one needs finite moments."
        )
    bounds.append(bound_asymptotically(seen, quantile * math.sqrt(found.units / n)))
    m = resolution(spectrum)
    row = heads[m - 1]
    spread = math.sqrt(_largest_eigenvalue(K) / len(K))
    bounds += bound_gaps(row, spread)
    bounds.append(bound_khgr(seen.hsic, ridge_z, ridge_s))
    bounds += bound_conditional_mmd(
        part.kernel_s.bound, K, L, sums[0] / row.eigenvalue, spectrum.vectors[:, :m], seen
    )
    if train is not None:
        bounds += bound_from_training(train, seen, rows, row, spread)
    return Certificate(
        n=n,
        confidence_level=confidence_level,
        hsic=seen.hsic,
        bounds=tuple(bounds),
        heads=heads,
        attributes=part.s.names,
        notes=tuple(notes),
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
    confidence_level: float,
    n_permutations: int,
    ridge_z: float,
    ridge_s: float,
    train: TrainedOn | None,
    max_rows: int,
) -> None:
    check_confidence_level(confidence_level)
    if not n_permutations >= 19:
        raise ArgumentError(
            "n_permutations", "be at least 19, for a 95 % quantile", repr(n_permutations), "Take 199."
        )
    if not max_rows >= 4:
        raise ArgumentError("max_rows", "be at least 4", repr(max_rows), "Leave it out for 5,000.")
    for name, ridge in (("ridge_z", ridge_z), ("ridge_s", ridge_s)):
        if not 0 < ridge < math.inf:
            raise ArgumentError(name, "be a positive number", repr(ridge), "Take 0.01 to start with.")
    if train is not None and not isinstance(train, TrainedOn):
        raise TypeError(
            f"'train' must be a TrainedOn or None. Got {type(train).__name__}. "
            "Pass TrainedOn(n, hsic, complexity)."
        )
