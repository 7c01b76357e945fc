"""The head that depends most on S: the supremum over a ball of the RKHS of Z, exactly.

With centred Gram matrices K~ and L~ (Theorem "Finite-sample control of the empirical demographic-parity gap
by HSIC") let E (n, m) hold the leading eigenvectors of L~ and P = E E'. A head f of the RKHS with |f| <= 1
has the projected gap P K~ alpha at the rows for some alpha with alpha' K~ alpha <= 1, so

    sup_f (1/n) sum_i (P delta_f)_i^2 = lambda_max(E' K~ E) / n,

reached by alpha = E v / sqrt(mu) for the leading eigenpair (mu, v) of the (m, m) matrix E' K~ E.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic._text import number
from frhsic.data import Sensitive, check_aligned, to_generator, to_groups, to_matrix, to_sensitive
from frhsic.dependence import HSIC
from frhsic.inference._results import Result
from frhsic.kernels import Kernel
from frhsic.numerics._centering import both_centred
from frhsic.numerics._lowrank import pivoted_factor
from frhsic.numerics._permutations import random_orders
from frhsic.numerics._threads import one_thread

# Eigenvalues below this part of the largest are rounding.
_SMALLEST = 1e-10
# Directions of S looked at; the paper's bound is far beyond use long before. And the rows.
_DIRECTIONS = 64
MOST_ROWS = 5_000
_ROWS_OF_FULL_RANK = 2_000
# The part of tr(L~) that the resolution reported first holds.
_SHARE = 0.95
# Rows that fix the bandwidths when none come: a tenth of all, but not fewer or more than these.
_FEWEST_FIXING, _MOST_FIXING = 20, 500


@dataclass(frozen=True)
class HeadRow(Result):
    """What heads of norm one can do at one resolution: the m leading directions of S."""

    m: int
    eigenvalue: float  # lambda_m of L~ / n
    paper_bound: float  # sqrt(HSIC_b / lambda_m), on the GDP of every head of norm one
    worst_rms: float  # the largest root mean square of the projected gap over these heads, exactly
    own_gdp: float  # the mean absolute projected gap of that head: the worst GDP lies between the two
    null_mean: float  # of worst_rms over permutations of s
    null_high: float  # its 95 % quantile
    crossfit_gdp: float  # the GDP of the head of one half of the rows on the other half, averaged over both
    crossfit_null: float  # its mean over permutations of s in the other half
    sharper: float  # paper_bound / worst_rms

    def __str__(self) -> str:
        return (
            f"At resolution m = {self.m} the worst head of norm one has a root mean square gap of "
            f"{number(self.worst_rms)} (the paper's bound: {number(self.paper_bound)}; under "
            f"independence: {number(self.null_mean)} on average, 95% below {number(self.null_high)})."
        )


@dataclass(frozen=True)
class WorstHead(Result):
    """The head f = sum_i coefficients_i k(z_i, .) of norm one whose mean depends most on s."""

    m: int  # the number of leading directions of S that its gap is resolved on
    rms: float  # the root mean square of its projected gap, the largest of all heads of norm one
    gdp: float  # its mean absolute projected gap
    n: int  # rows used
    rows: tuple[int, ...]  # which ones
    coefficients: tuple[float, ...]  # the head's weights on these rows
    values: tuple[float, ...]  # what it predicts there
    notes: tuple[str, ...]
    _kernel: Kernel
    _z: Tensor

    def predict(self, z: object) -> NDArray[np.float64]:
        """Return the head's value at new rows z ``(n, d)``, shape ``(n,)``."""
        new = to_matrix(z, name="z")
        if new.shape[1] != self._z.shape[1]:
            must = f"have {self._z.shape[1]} columns like the rows of the head"
            raise ArgumentError("z", must, new.shape[1], "Pass the same representation.")
        alpha = torch.tensor(self.coefficients, dtype=torch.float64)
        return torch.cat([self._kernel.gram(part, self._z) @ alpha for part in new.split(4096)]).numpy()

    def __str__(self) -> str:
        text = (
            f"The worst head of norm one at resolution m = {self.m} has a root mean square gap of "
            f"{number(self.rms)} and a GDP of {number(self.gdp)} on these rows (n = {self.n:,})."
        )
        return " ".join((text, *self.notes))


@one_thread()
def worst_case_head(
    z: object,
    s: object,
    *,
    dependence: HSIC | None = None,
    m: int | None = None,
    random_state: object = None,
) -> WorstHead:
    """Return the head of norm one, in the RKHS of z, with the largest mean square gap along s.

    The gap of f is its centred prediction, projected on the m leading eigenvectors of the centred Gram matrix
    of s (the paper's empirical conditional-mean gap). The supremum is an eigenvalue, and reached: no search.

    Parameters
    ----------
    z : array, tensor or frame of shape (n, d)
    s : array, tensor or frame of shape (n,) or (n, q)
    dependence : HSIC or None, default=None
        With numbers as bandwidths. None fixes those of ``HSIC()`` on some of the rows, which are left out.
    m : int or None, default=None
        The resolution; None takes as many directions as hold 95 % of the trace of the Gram matrix of s.
    random_state : None, int or generator

    Returns
    -------
    WorstHead

    Notes
    -----
    In-sample: it grows with m under independence too. :func:`certify` puts it beside its permutation null and
    its cross-fitted value. A linear head is not in the RKHS of a Gaussian: use ``Gaussian(...) + Linear()``.

    Examples
    --------
    >>> from frhsic.kernels import Gaussian
    >>> s = torch.linspace(-1, 1, 100, dtype=torch.float64)
    >>> head = worst_case_head(s**2, s, dependence=HSIC(Gaussian(0.5), Gaussian(0.5)), m=2)
    >>> head.gdp <= head.rms
    True
    """
    generator = to_generator(random_state)
    fixed = fixed_rows(z, s, dependence, generator)
    part = few_rows(fixed, MOST_ROWS, generator)
    K = centred_gram(part.kernel_z, part.z)
    spectrum = directions(part.kernel_s, part.s.values)
    check_directions(spectrum)
    if m is None:
        m = resolution(spectrum)
    elif not (isinstance(m, int) and 1 <= m <= len(spectrum.eigenvalues)):
        must = f"be a whole number from 1 to {len(spectrum.eigenvalues)}, the directions of 's' on these rows"
        raise ArgumentError("m", must, repr(m), "Leave it out to choose.")
    worst = worst_heads(K, spectrum.vectors[:, :m], m)[-1]
    values = part.kernel_z.gram(part.z, part.z) @ worst.alpha
    return WorstHead(
        m=m,
        rms=worst.rms,
        gdp=float(worst.gap.abs().mean()),
        n=len(part.z),
        rows=tuple(part.rows.tolist()),
        coefficients=tuple(worst.alpha.tolist()),
        values=tuple(values.tolist()),
        notes=part.notes,
        _kernel=part.kernel_z,
        _z=part.z,
    )


class Fixed(NamedTuple):
    """Rows to certify, and the kernels that were fixed without them."""

    z: Tensor
    s: Sensitive
    kernel_z: Kernel
    kernel_s: Kernel
    rows: Tensor
    notes: tuple[str, ...]
    groups: Tensor | None = None  # a code for each row; rows of one group may depend on one another


def fixed_rows(
    z: object, s: object, dependence: HSIC | None, generator: torch.Generator, groups: object = None
) -> Fixed:
    """Convert the inputs; without a measure fix the bandwidths on some of the rows, which are left out."""
    fewest = 2 * _FEWEST_FIXING if dependence is None else 4
    check_aligned(z=z, s=s, groups=groups)
    zs = to_matrix(z, name="z", min_rows=fewest)
    ss = to_sensitive(s, name="s", n_rows=len(zs), rows_of="z")
    n = len(zs)
    codes = to_groups(groups, n_rows=n, rows_of="z")
    if dependence is not None:
        kernel_s = _checked(dependence, ss)
        return Fixed(zs, ss, dependence.kernel_z, kernel_s, torch.arange(n), (), codes)
    size = min(max(n // 10, _FEWEST_FIXING), _MOST_FIXING)
    if codes is None:
        order = torch.randperm(n, generator=generator)
        first, rest = order[:size], order[size:].sort().values
    else:  # whole groups: no part of a group that fixes the kernels is certified
        sizes = codes.bincount()
        order = torch.randperm(len(sizes), generator=generator)
        fixing = torch.isin(codes, order[: 1 + int((sizes[order].cumsum(0) < size).sum())])
        first, rest = fixing.nonzero()[:, 0], (~fixing).nonzero()[:, 0]
        if len(rest) < _FEWEST_FIXING:
            must = f"leave at least {_FEWEST_FIXING} rows once whole groups fixed the kernels"
            fix = "Pass more groups, or a 'dependence' with fixed kernels."
            raise ArgumentError("groups", must, len(rest), fix)
        size, codes = len(first), codes[rest].unique(return_inverse=True)[1]
    measure = HSIC().calibrate(zs[first], ss[first], generator, freeze=True)
    note = f"{size} random rows fixed the bandwidths and were left out; {n - size} are certified."
    return Fixed(zs[rest], ss[rest], measure.kernel_z, _checked(measure, ss), rest, (note,), codes)


def _checked(dependence: object, s: Sensitive) -> Kernel:
    """Return the kernel on s, or say why this measure certifies nothing."""
    if not isinstance(dependence, HSIC):
        fix = "Pass HSIC().calibrate(z_other, s_other, freeze=True)."
        raise TypeError(f"'dependence' must be an HSIC. Got {type(dependence).__name__}. {fix}")
    wanted = {"estimator": "biased", "normalized": False, "root": False, "reference": "product"}
    wrong = {name: getattr(dependence, name) for name in wanted if getattr(dependence, name) != wanted[name]}
    if wrong:
        must = "be the plain biased HSIC, for which the bounds are proved"
        got = ", ".join(f"{name}={value!r}" for name, value in wrong.items())
        raise ArgumentError("dependence", must, got, "Make it with HSIC(kernel_z, kernel_s).")
    kernel_s = dependence._kernel_s(s)
    for name, kernel in (("kernel_z", dependence.kernel_z), ("kernel_s", kernel_s)):
        if not kernel.fixed:
            must = "have numbers as bandwidths, fixed before these rows were seen"
            fix = "Fix it on other rows: dependence.calibrate(z_other, s_other, freeze=True)."
            raise ArgumentError("dependence", must, f"the rule in {name}={kernel!r}", fix)
    return kernel_s


def few_rows(fixed: Fixed, most: int, generator: torch.Generator) -> Fixed:
    """Return at most as many random rows as an (n, n) matrix and its eigenvectors allow."""
    if len(fixed.z) > _ROWS_OF_FULL_RANK:
        thin = pivoted_factor(fixed.kernel_s, fixed.s.values[: 2 * most])
        most = min(most, _ROWS_OF_FULL_RANK) if thin is None else most
    return drawn_rows(fixed, most, "Heads, gaps and the asymptotic bound's quantile are computed", generator)


def drawn_rows(fixed: Fixed, most: int, about: str, generator: torch.Generator) -> Fixed:
    """Return random rows, and say what is computed on them; all if there are no more."""
    n = len(fixed.z)
    if n <= most:
        return fixed
    rows = torch.randperm(n, generator=generator)[:most].sort().values
    note = f"{about} on {most:,} random rows of {n:,}."
    return fixed._replace(
        z=fixed.z[rows],
        s=fixed.s[rows],
        rows=fixed.rows[rows],
        notes=(*fixed.notes, note),
        groups=None if fixed.groups is None else fixed.groups[rows].unique(return_inverse=True)[1],
    )


def centred_gram(kernel: Kernel, x: Tensor) -> Tensor:
    """Return K~ = H K H, not divided by n."""
    return len(x) * both_centred(kernel.bind(x).gram(x, x), None, "biased")


class Spectrum(NamedTuple):
    """The leading eigenvalues of L~ / n, with eigenvectors (n, r); r is at most 64 of ``rank``."""

    eigenvalues: Tensor
    vectors: Tensor
    rank: int
    trace: float  # of L~ / n: the sum of all eigenvalues


def directions(kernel: Kernel, s: Tensor) -> Spectrum:
    """Return the eigenvalues of L~ / n above 1e-10 of the first, by a thin factor of L where there is one."""
    n, kernel = len(s), kernel.bind(s)
    F = pivoted_factor(kernel, s)
    if F is None:
        lam, E = _leading(centred_gram(kernel, s) / n)
    else:
        E, roots, _ = torch.linalg.svd(F - F.mean(dim=0), full_matrices=False)
        lam = roots.square() / n
    # An L~ of rounding errors, of rows that the kernel does not tell apart, has no directions.
    least = max(_SMALLEST * float(lam[0]), 1e-14 * float(kernel.diagonal(s).mean())) if len(lam) else 0.0
    rank = int((lam > least).sum())
    used = min(rank, _DIRECTIONS)
    return Spectrum(lam[:used], E[:, :used], rank, float(lam.clamp_min(0.0).sum()))


def _leading(L: Tensor) -> tuple[Tensor, Tensor]:
    """Return all eigenvalues of a symmetric matrix, the largest first, and the leading eigenvectors."""
    if len(L) > 8 * _DIRECTIONS:  # by Lanczos iterations: a fifth of the time of all eigenvectors
        from scipy.sparse.linalg import ArpackError, eigsh

        start = torch.rand(len(L), generator=torch.Generator().manual_seed(0), dtype=L.dtype).numpy()
        lam = torch.linalg.eigvalsh(L)
        with contextlib.suppress(ArpackError):  # equal eigenvalues, of repeated rows, may be missed
            values, E = map(torch.from_numpy, eigsh(L.numpy(), _DIRECTIONS, v0=start))
            if torch.allclose(values, lam[-_DIRECTIONS:], rtol=1e-8):
                return lam.flip(0), E.flip(1)
    lam, E = torch.linalg.eigh(L)
    return lam.flip(0), E.flip(1)


def check_directions(spectrum: Spectrum) -> None:
    """Raise ArgumentError if the kernel of s tells no rows apart."""
    if not len(spectrum.eigenvalues):
        got = "rows that the kernel does not tell apart"
        raise ArgumentError("s", "vary under its kernel", got, "Use a smaller bandwidth for 's'.")


def resolution(spectrum: Spectrum) -> int:
    """Return the least m whose directions hold 95 % of the trace of L~; all of those kept if none does."""
    held = spectrum.eigenvalues.cumsum(0) >= _SHARE * spectrum.trace
    return int(held.nonzero()[0]) + 1 if bool(held.any()) else len(held)


class Worst(NamedTuple):
    """The worst head at one resolution: its coefficients (n,), projected gap (n,) and the gap's rms."""

    alpha: Tensor
    gap: Tensor
    rms: float


def worst_heads(K: Tensor, E: Tensor, most: int) -> list[Worst]:
    """Return the worst heads for K~ (n, n) and the first m columns of E, for m from 1 to ``most``."""
    whole, heads = E.mT @ K @ E, []
    for m in range(1, most + 1):
        M = whole[:m, :m]
        mu, V = torch.linalg.eigh(0.5 * (M + M.mT))
        largest = float(mu[-1].clamp_min(0.0))
        direction = E[:, :m] @ V[:, -1]
        # A kernel that is constant on these rows has heads without a gap: any coefficients, here none.
        alpha = direction / math.sqrt(largest) if largest > 0 else torch.zeros_like(direction)
        heads.append(Worst(alpha, math.sqrt(largest) * direction, math.sqrt(largest / len(E))))
    return heads


def head_rows(
    part: Fixed, K: Tensor, spectrum: Spectrum, hsic: float, n_permutations: int, generator: torch.Generator
) -> tuple[HeadRow, ...]:
    """Return a row for each resolution; K is K~ of the rows of ``part``, hsic their HSIC_b."""
    E = spectrum.vectors
    r = E.shape[1]
    null = _null(part, K, E, n_permutations, generator)  # (B, r)
    crossed, chance = _crossfitted(part, K, r, n_permutations, generator)
    rows = []
    for j, head in enumerate(worst_heads(K, E, r)):
        lam = float(spectrum.eigenvalues[j])
        paper = math.sqrt(max(hsic, 0.0) / lam)
        rows.append(
            HeadRow(
                m=j + 1,
                eigenvalue=lam,
                paper_bound=paper,
                worst_rms=head.rms,
                own_gdp=float(head.gap.abs().mean()),
                null_mean=float(null[:, j].mean()),
                null_high=float(torch.quantile(null[:, j], 0.95)),
                crossfit_gdp=float(crossed[j]),
                crossfit_null=float(chance[j]),
                sharper=paper / head.rms if head.rms > 0 else 1.0,
            )
        )
    return tuple(rows)


def _null(part: Fixed, K: Tensor, E: Tensor, n_permutations: int, generator: torch.Generator) -> Tensor:
    """Return the worst rms of each permutation of s at each resolution, shape ``(B, r)``.

    Permuting s permutes the rows of its eigenvectors; all resolutions share one matrix E' K~ E.
    """
    n, r = E.shape
    F = pivoted_factor(part.kernel_z.bind(part.z), part.z, 256)
    if F is not None:
        F = F - F.mean(dim=0)
    elif n > _ROWS_OF_FULL_RANK:  # half the time, and six digits of a simulated quantile are enough
        K, E = K.float(), E.float()
    values = []
    for chunk in torch.arange(n_permutations).split(max(1, 4_000_000 // (n * r))):
        count = len(chunk)
        shuffled = E[random_orders(n, count, generator)]  # (b, n, r)
        if F is not None:
            half = F.mT @ shuffled
            M = half.mT @ half
        else:
            columns = shuffled.permute(1, 0, 2).reshape(n, count * r)  # one product for the whole chunk
            M = shuffled.mT @ (K @ columns).reshape(n, count, r).permute(1, 0, 2)
        M = 0.5 * (M + M.mT)
        largest = [torch.linalg.eigvalsh(M[:, :m, :m])[:, -1] for m in range(1, r + 1)]
        values.append((torch.stack(largest, dim=1).double().clamp_min(0.0) / n).sqrt())
    return torch.cat(values)


def _crossfitted(
    part: Fixed, K: Tensor, r: int, n_permutations: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the GDP, on the other half, of the worst heads of each half, and its mean by chance: ``(r,)``.

    Coefficients of a head sum to zero, so entries of K~ instead of K change its values by a constant only.
    """
    if part.groups is None:
        halves = torch.randperm(len(K), generator=generator).tensor_split(2)
    else:  # of whole groups
        first = torch.randperm(int(part.groups.max()) + 1, generator=generator)[part.groups] % 2 == 0
        halves = (first.nonzero()[:, 0], (~first).nonzero()[:, 0])
    spectra = [directions(part.kernel_s, part.s.values[half]) for half in halves]
    common = min(r, *(len(spectrum.eigenvalues) for spectrum in spectra))
    if common == 0:  # s is constant in one half
        return K.new_full((r,), math.nan), K.new_full((r,), math.nan)
    gdp, chance = K.new_zeros(common), K.new_zeros(common)
    for own, other in ((0, 1), (1, 0)):
        rows, E = halves[own], spectra[own].vectors
        heads = worst_heads(K[rows][:, rows], E, common)
        alpha = torch.stack([head.alpha for head in heads], dim=1)
        delta = K[halves[other]][:, rows] @ alpha
        delta = delta - delta.mean(dim=0)  # (n / 2, common): a head for each resolution
        A = spectra[other].vectors[:, :common]
        gdp += 0.5 * _projected_gdp(A, delta)
        for _ in range(n_permutations):
            shuffled = A[torch.randperm(len(A), generator=generator)]
            chance += 0.5 / n_permutations * _projected_gdp(shuffled, delta)
    # Halves may resolve fewer directions than all rows: beyond, their finest resolution stands.
    fill = torch.arange(r).clamp_max(common - 1)
    return gdp[fill], chance[fill]


def _projected_gdp(E: Tensor, delta: Tensor) -> Tensor:
    """Return the mean absolute value of delta_m projected on the first m columns of E, for each column m."""
    return (E @ (E.mT @ delta).triu()).abs().mean(dim=0)
