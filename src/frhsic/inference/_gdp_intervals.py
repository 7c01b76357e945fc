"""The interval for GDP, from the multiplier process of the error of a conditional mean along S."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from scipy.special import ndtri
from torch import Tensor

from frhsic.dependence import GDP
from frhsic.inference._gaps import gaps_of, has_gaps
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
    if has_gaps(rows):
        return gaps_of(rows, measure).interval(measure, options)
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

    def lower(self, tail: float) -> float:
        beyond = max(0.0, self.unknown - float(self.noise.quantile(1.0 - tail)))
        return max(0.0, self.known - float(self.moves.quantile(1.0 - tail)) + beyond)

    def upper(self, tail: float) -> float:
        z = max(0.0, float(ndtri(1.0 - tail)))
        q = max(0.0, float(self.chance.quantile(1.0 - tail)))
        shift = self.squares + 2.0 * z * z * self.largest
        most = shift + math.sqrt(max(0.0, shift**2 - self.squares**2 + q**2))
        limit = self.known - float(self.moves.quantile(tail)) + math.sqrt(self.mass * most) + self.turns
        return max(limit, self.estimate)


def gdp_tails(curve: Smoothed, n_draws: int, generator: torch.Generator) -> Tails:
    """Return the limits of the mean of |g|, averaged over columns."""
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
    spread = e.square().mean(dim=2).sqrt()
    spread = torch.maximum(spread, 1e-12 * spread.amax(dim=0) + 1e-300)
    largest = float((e.abs() / spread[:, :, None]).flatten(0, 1).amax(dim=0).quantile(BEYOND_DOUBT))
    # Of a few rows no sign is beyond doubt: Student's law down to one degree of freedom.
    limits = process.limits_of_columns(largest, 2.0)
    if bool(process.doubtful.any()):
        limits = limits * _widening(curve, process.rows, largest)
    clear = here.abs() > limits
    pi = (share / here.shape[1])[:, None].expand_as(here)
    p, u, h = pi[~clear], e[~clear], here[~clear]
    v = u.square().mean(dim=1)
    rooted = p.sqrt()[:, None] * u
    return Tails(
        estimate=float(curve.mass @ curve.gaps.abs().mean(dim=1)),
        known=float((pi * here.abs())[clear].sum()),
        moves=shares.mean(dim=0) + (pi * here.sign())[clear] @ e[clear],
        unknown=float(p @ h.abs()),
        noise=p @ u.abs(),
        squares=max(0.0, float(p @ (h.square() - v))),
        chance=p @ (u.square() - v[:, None]),
        largest=float(torch.linalg.eigvalsh(rooted @ rooted.mT / e.shape[-1])[-1]) if len(p) else 0.0,
        mass=float(p.sum()),
        turns=_crossings(curve, here, clear, share),
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
    """Return draws of GDP under independence, shape ``(B,)``: one product.

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
    return torch.einsum("m,mbr->b", curve.mass, gaps.abs()) / r
