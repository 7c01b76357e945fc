"""The interval for GDP, from the multiplier process of the error of a conditional mean along S."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.special import ndtri
from torch import Tensor

from frhsic.dependence import GDP
from frhsic.inference._gaps import gaps_of
from frhsic.inference._kernel_intervals import CHANCE_DRAWS, group_notes
from frhsic.inference._places import roots
from frhsic.inference._process import Process, Smoothed, smooth_rows
from frhsic.inference._question import (
    IntervalOptions,
    Observations,
)
from frhsic.inference._results import Interval
from frhsic.numerics._permutations import random_orders

# The simultaneous confidence with which the sign of a gap is taken as known.
BEYOND_DOUBT = 0.99
# Up to so many rows they are permuted for what independence gives; above, the limit of that law is drawn.
CHANCE_ROWS = 5_000


def gdp_interval(rows: Observations, measure: GDP, options: IntervalOptions) -> Interval:
    found = gaps_of(rows, measure)
    if found is not None:
        return found.interval(measure, options)
    measure, curve = gdp_curve(rows, measure)
    estimate = float(measure(rows.z, rows.s, rows.w))
    return _interval(curve, options, estimate, rows.s.names, rows.n_units, group_notes(rows))


def _interval(
    curve: Smoothed,
    options: IntervalOptions,
    estimate: float,
    names: tuple[str, ...],
    n: int,
    notes: tuple[str, ...] = (),
) -> Interval:
    limits = gdp_tails(curve, options.n_draws, options.generator)
    tail = 0.5 * (1.0 - options.confidence_level)
    chance, chance_high = options.summarize(
        gdp_under_independence(curve, options.generator) if options.chance else None
    )
    return Interval(
        estimate=estimate,
        low=min(limits.lower(tail), estimate),
        high=max(limits.upper(tail), estimate),
        confidence_level=options.confidence_level,
        measure="GDP",
        target=curve.target_of_gdp,
        method="Gaussian multiplier process of the curve",
        attributes=names,
        n=n,
        chance=chance,
        chance_high=chance_high,
        notes=(*notes, *curve.notes()),
    )


def gdp_curve(rows: Observations, measure: GDP) -> tuple[GDP, Smoothed]:
    """Return the measure with its cells fixed, and the curve of which it is the mean gap."""
    curve = smooth_rows(rows, measure._cells)
    return measure._with(_cells=curve.cells), curve


class Tails(NamedTuple):
    """Limits of the mean of |g| along s, as functions of the chance that each fails.

    Let A be the places where the sign of g is beyond doubt (outside a simultaneous 99 % band), and U the
    others. On A the mean of |g| is that of +/- g, and its error is that of a mean. On U

        sum_U pi_a |g_a|  <=  ( pi(U) sum_U pi_a g_a^2 )^(1/2),

    and the sum of squares is estimated without bias by Q^ = sum_U pi_a (g^_a^2 - var e_a). Its error is
    2 sum_U pi_a g_a e_a + sum_U pi_a (e_a^2 - var e_a), of which the first has at most the variance
    4 lambda Q, lambda the largest eigenvalue of the covariance of sqrt(pi) e on U. So Q is at most the
    larger root of (Q - Q^)^2 = 4 z^2 lambda Q + q^2 with z and q the quantiles. In bins, chance adds
    E|e_a| to each |g_a| but nothing to Q^: the limit is shorter than one around sum |g^_a| by a factor that
    grows with the number of bins. (It is never below the estimate sum pi_a |g^_a| itself.) The lower limit
    takes the quantile of sum_U pi_a |e_a| off instead, and is not below zero on U.
    """

    estimate: float
    known: float  # sum_A pi_a |g_a|
    moves: Tensor  # (B,), draws of the error of ``known`` and of the shares of the places
    unknown: float  # sum_U pi_a |g_a|
    noise: Tensor  # (B,), draws of sum_U pi_a |e_a|
    squares: float  # Q^
    chance: Tensor  # (B,), draws of sum_U pi_a (e_a^2 - var e_a)
    largest: float  # lambda
    mass: float  # pi(U)
    turns: float  # what ranges within which the curve crosses the overall mean may add
    every: Tensor | None = None  # (B,), draws of sum pi_a |e_a| over all places, with the error of shares

    def lower(self, tail: float) -> float:
        beyond = max(0.0, self.unknown - float(self.noise.quantile(1.0 - tail)))
        limit = self.known - float(self.moves.quantile(1.0 - tail)) + beyond
        if self.every is not None:
            # Of many curves of skewed scores some sign looks clear under independence: here none is needed.
            limit = min(limit, self.known + self.unknown - float(self.every.quantile(1.0 - tail)))
        return max(0.0, limit)

    def upper(self, tail: float) -> float:
        z = max(0.0, float(ndtri(1.0 - tail)))
        q = max(0.0, float(self.chance.quantile(1.0 - tail)))
        shift = self.squares + 2.0 * z * z * self.largest
        most = shift + math.sqrt(max(0.0, shift**2 - self.squares**2 + q**2))
        limit = self.known - float(self.moves.quantile(tail)) + math.sqrt(self.mass * most) + self.turns
        return max(limit, self.estimate)


def gdp_tails(
    curve: Smoothed, n_draws: int, generator: torch.Generator, *, standardize: bool = False
) -> Tails:
    """Return the limits of the mean of |g|, averaged over columns.

    With ``standardize`` pi_a v_a and g_a / v_a stand for pi_a and g_a on U, v_a the size of a gap there: the
    inequality is nearly an equality if gaps are of that size, however unequal their errors are.
    """
    errors = _Errors.draw(curve, n_draws, generator, skewed=standardize)
    return errors.tails(range(errors.mean.shape[1]), standardize=standardize)


def tails_of_columns(curve: Smoothed, n_draws: int, generator: torch.Generator) -> list[Tails]:
    """Return the limits of each column by itself, from the same draws: they err together."""
    errors = _Errors.draw(curve, n_draws, generator, skewed=True)
    return [errors.tails([k], standardize=True) for k in range(errors.mean.shape[1])]


class _Errors(NamedTuple):
    """The gaps of a curve at some points, and draws of their errors."""

    curve: Smoothed
    share: Tensor  # (a,)
    mean: Tensor  # (a, r), the gaps
    errors: Tensor  # (a, r, B)
    shares: Tensor  # (r, B), the error of the mean of |g| by that of the shares of the places
    clear: Tensor  # (a, r), whether the sign of a gap is beyond doubt
    spread: Tensor  # (a, r), the deviation of an error

    @classmethod
    def draw(
        cls, curve: Smoothed, n_draws: int, generator: torch.Generator, *, skewed: bool = False
    ) -> _Errors:
        """Return draws of the errors; ``skewed`` allows for skewed columns, such as rare decisions."""
        at, share = curve.points()
        process = Process.of_columns(curve, at)
        here = process.mean
        gaps = curve.gaps.abs()
        gaps = gaps - curve.mass @ gaps
        drawn, outer = [], []
        for errors, multipliers in process.draws(n_draws, generator, gap=True):
            drawn.append(errors.permute(0, 2, 1))  # (a, r, b)
            outer.append(gaps.mT @ multipliers)
        e, shares = torch.cat(drawn, dim=2), torch.cat(outer, dim=1)
        variance = e.square().mean(dim=2)
        spread = variance.sqrt()
        spread = torch.maximum(spread, 1e-12 * spread.amax(dim=0) + 1e-300)
        largest = float((e.abs() / spread[:, :, None]).flatten(0, 1).amax(dim=0).quantile(BEYOND_DOUBT))
        # Of a few rows no sign is beyond doubt: Student's law down to one degree of freedom.
        limits = process.limits_of_columns(largest, 2.0)
        if skewed or bool(process.doubtful.any()):
            limits = limits * _widening(curve, process.rows, largest)
        clear = here.abs() > limits
        return cls(curve, share, here, e, shares, clear, spread)

    def _size(self) -> Tensor:
        """Return the size of an estimated gap where its sign is not clear, ``(a, r)``.

        The root of the variance of its error plus the mean square of the gaps themselves, which is one number
        for each column: where there are none the sizes are those of the errors.
        """
        share = torch.where(self.clear, 0.0, self.share[:, None])
        beyond = (share * (self.mean.square() - self.spread.square())).sum(dim=0)
        square = (beyond / share.sum(dim=0).clamp_min(1e-300)).clamp_min(0.0)
        return (self.spread.square() + square).sqrt()

    def tails(self, columns: Sequence[int], *, standardize: bool) -> Tails:
        """Return the limits of the mean over some columns."""
        kept = list(columns)
        r = len(kept)
        here, clear = self.mean[:, kept], self.clear[:, kept]
        pi = (self.share / r)[:, None].expand_as(here)
        known = float((pi * here.abs())[clear].sum())
        e = self.errors[:, kept]
        moves = self.shares[kept].mean(dim=0) + (pi * here.sign())[clear] @ e[clear]
        every = None
        if standardize:
            every = (pi[:, :, None] * e.abs()).sum(dim=(0, 1)) + self.shares[kept].mean(dim=0)
        p, u, h = pi[~clear], e[~clear], here[~clear]
        if standardize:
            size = self._size()[:, kept][~clear]
            p, u, h = p * size, u / size[:, None], h / size
        v = u.square().mean(dim=1)
        rooted = p.sqrt()[:, None] * u
        largest = float(torch.linalg.eigvalsh(rooted @ rooted.mT / e.shape[-1])[-1]) if len(p) else 0.0
        return Tails(
            estimate=float(self.curve.mass @ self.curve.gaps[:, kept].abs().mean(dim=1)),
            known=known,
            moves=moves,
            unknown=float(p @ h.abs()),
            noise=p @ u.abs(),
            squares=max(0.0, float(p @ (h.square() - v))),
            chance=p @ (u.square() - v[:, None]),
            largest=largest,
            mass=float(p.sum()),
            turns=_crossings(self.curve, here, clear, self.share),
            every=every,
        )


def _widening(curve: Smoothed, rows: Tensor, largest: float) -> Tensor:
    """Return by how much a quantile of the error of a mean grows with the skewness of the rows, ``(a, r)``.

    By Cornish and Fisher: z + c (z^2 - 1) / 6, with c the skewness of the mean of the rows behind a point. It
    is that of all rows over the root of their number, and both sides take the longer one.
    """
    shares = curve.places.w
    second, third = shares @ curve.f.square(), shares @ curve.f.pow(3)
    skewness = third.abs() / second.clamp_min(1e-300) ** 1.5
    return 1.0 + skewness / rows.sqrt()[:, None] * max(0.0, largest**2 - 1.0) / (6.0 * largest)


def _crossings(curve: Smoothed, g: Tensor, clear: Tensor, share: Tensor) -> float:
    """Return what the mean of |g| may lose in ranges within which the curve crosses the overall mean.

    Of a range whose two neighbours lie clearly on different sides, at distances u and v, a curve that is
    monotone over the three lies between them; with the mean g of the range, the mean of |g| is at most
    (2 u v + g (u - v)) / (u + v), where u is on the side of positive g.
    """
    cells = curve.cells
    if cells.exact or not cells.narrow or len(cells.names) != 1 or len(g) < 3:
        return 0.0
    left, mid, right = g[:-2], g[1:-1], g[2:]
    cross = clear[:-2] & clear[2:] & (left * right < 0) & ~cells.single[1:-1, None]
    u, v = torch.maximum(left, right), -torch.minimum(left, right)
    most = (2.0 * u * v + mid * (u - v)) / (u + v).clamp_min(1e-300)
    lost = torch.where(cross, (most - mid.abs()).clamp_min(0.0), 0.0)
    return float(share[1:-1] @ lost.mean(dim=1))


def gdp_under_independence(curve: Smoothed, generator: torch.Generator) -> Tensor:
    """Return draws of GDP under independence, shape ``(B,)``."""
    return gaps_under_independence(curve, generator).mean(dim=1)


def gaps_under_independence(curve: Smoothed, generator: torch.Generator) -> Tensor:
    """Return draws of the mean gap of each column under independence, ``(B, r)``: one product.

    The sums over places of w_i f_p(i), for a random order p, have the covariance of f times
    diag(sum_i w_i^2) - mass mass' / n. Gaps from the overall mean do not see the second part, and the sums of
    many rows are normal.
    """
    places, f = curve.places, curve.f
    n, r = f.shape
    if curve.covariance is not None:  # of groups of rows: the law of their sums, were there no dependence
        size = r * len(places.sizes)
        root = roots(curve.covariance[1:, :, 1:].reshape(size, size))
        draws = torch.randn((CHANCE_DRAWS, size), generator=generator, dtype=torch.float64) @ root
        sums = draws.reshape(CHANCE_DRAWS, r, -1).permute(2, 0, 1)
    elif n <= CHANCE_ROWS:
        orders = random_orders(n, CHANCE_DRAWS, generator)
        sums = torch.stack([places.sums(places.w[:, None] * f[order]) for order in orders], dim=1)
    else:
        noise = torch.randn((len(places.sizes), CHANCE_DRAWS, r), generator=generator, dtype=torch.float64)
        around = f - f.mean(dim=0)
        root = roots(around.mT @ around / (n - 1.0))
        sums = places.sums(places.w.square()).sqrt()[:, None, None] * (noise @ root)  # (M, B, r)
    gaps = sums / curve.mass[:, None, None] - sums.sum(dim=0)
    return torch.einsum("m,mbr->br", curve.mass, gaps.abs())
