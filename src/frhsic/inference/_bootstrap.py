"""Bootstraps of HSIC under independence: a random multiplier for each row, or a sign for each group."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from frhsic.dependence import HSIC
from frhsic.inference._moments import feature_sums
from frhsic.inference._strata import Stratum, varying

# Above so many rows, or groups, the bootstrap draws from so many of them.
WILD_ROWS = 5_000
# Up to so many groups of rows the multipliers act on their Gram matrix instead of on their features.
_FEW_GROUPS = 512
# Multipliers are drawn in chunks of about this many numbers (160 MB).
_CHUNK = 20_000_000


def wild_values(
    measures: Sequence[HSIC], strata: Sequence[Stratum], count: int, generator: torch.Generator
) -> Tensor:
    """Return HSIC_w and ``count`` draws of its wild bootstrap, ``(k, count + 1)``.

    HSIC_w = |sum_i w_i phi_i (x) psi_i|^2 with features centred by w; a draw multiplies each term by an
    independent standard normal. Under independence (of the weighted law) both have the same limit. A draw is
    normal with covariance sum_i w_i^2 a_i (x) a_i, which some of many rows estimate, drawn in proportion to a
    bound on w_i^2 |a_i|^2: no row with a large term may be missed.
    """
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    for stratum in varying(strata):
        seen = feature_sums(measures, stratum)
        z, s, u = stratum.z, stratum.s.values, seen.w
        if len(u) > WILD_ROWS:
            sizes = seen.norms_z * seen.norms_s
            chance = (sizes / sizes.mean(dim=1, keepdim=True).clamp_min(1e-300)).sum(dim=0)
            chance = chance / chance.sum()
            rows = _draw_rows(chance, WILD_ROWS, generator)
            z, s, u = z[rows], s[rows], u[rows] / (WILD_ROWS * chance[rows]).sqrt()
        parts = torch.arange(1, count + 1).split(max(1, _CHUNK // len(u)))
        noise = [torch.randn((len(u), len(part)), generator=generator, dtype=torch.float64) for part in parts]
        for k in range(len(measures)):
            total[k, 0] += stratum.share * seen.cross[k].square().sum()
            G, F = seen.terms(k, z, s, u)
            for part, xi in zip(parts, noise, strict=True):
                for column in F.T:  # (r_z, draws) at a time
                    values = (G.T @ (column[:, None] * xi)).square().sum(dim=0)
                    total[k, part] += stratum.share * values
    return total


def cluster_values(
    measures: Sequence[HSIC], strata: Sequence[Stratum], count: int, generator: torch.Generator
) -> Tensor:
    """Return HSIC_w and ``count`` draws of its cluster bootstrap, ``(k, count + 1)``.

    HSIC_w = |sum_g A_g|^2 with A_g = sum_{i in g} w_i phi_i (x) psi_i over the rows of a group, features
    centred by w. A draw gives each A_g a random sign, the same in all strata: rows of one group may depend on
    one another in any way. What the groups add to |.|^2 by themselves is the same in all draws. Features are
    centred by means of the same groups, which makes the A_g smaller by a share q = sum_g share_g^2 of their
    squares: draws are divided by 1 - q. Of many groups 5,000 are drawn, in proportion to a bound on |A_g|^2.
    """
    n_groups = 1 + max(int(own.max()) for own in (stratum.groups for stratum in strata) if own is not None)
    total = torch.zeros((len(measures), count + 1), dtype=torch.float64)
    parts = [(stratum, feature_sums(measures, stratum)) for stratum in varying(strata)]
    factor = torch.ones(n_groups, dtype=torch.float64)
    if n_groups > WILD_ROWS:
        bound = torch.zeros(n_groups, dtype=torch.float64)
        for stratum, seen in parts:
            assert stratum.groups is not None  # noqa: S101
            sizes = seen.norms_z.sqrt() * seen.norms_s.sqrt() / len(stratum.z)
            sizes = sizes / sizes.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-300)
            bound.index_add_(0, stratum.groups, stratum.share * sizes.sum(dim=0))
        chance = bound.square() / bound.square().sum()
        drawn = _draw_rows(chance, WILD_ROWS, generator)
        times = torch.bincount(drawn, minlength=n_groups)
        factor = (times / (WILD_ROWS * chance.clamp_min(1e-300))).sqrt()
    chosen = factor.nonzero()[:, 0]
    place = torch.full((n_groups,), -1)
    place[chosen] = torch.arange(len(chosen))
    signs = torch.randint(2, (len(chosen), count), generator=generator).double().mul_(2.0).sub_(1.0)
    signs *= factor[chosen, None]
    for stratum, seen in parts:
        assert stratum.groups is not None  # noqa: S101
        mass = seen.w.new_zeros(n_groups).index_add_(0, stratum.groups, seen.w)
        share = stratum.share / max(1.0 - float(mass.square().sum()), 0.5)
        group = place[stratum.groups]
        rows = (group >= 0).nonzero()[:, 0]
        z, s, u, group = stratum.z[rows], stratum.s.values[rows], seen.w[rows], group[rows]
        for k in range(len(measures)):
            total[k, 0] += stratum.share * seen.cross[k].square().sum()
            G, F = seen.terms(k, z, s, u)
            gram = G.new_zeros((len(chosen), len(chosen)) if len(chosen) <= _FEW_GROUPS else (0, 0))
            for column in F.T:  # (r_z, draws) at a time
                sums = G.new_zeros((len(chosen), G.shape[1])).index_add_(0, group, column[:, None] * G)
                if len(gram):
                    gram.addmm_(sums, sums.mT)
                else:
                    for part in torch.arange(count).split(max(1, _CHUNK // len(chosen))):
                        total[k, 1 + part] += share * (sums.mT @ signs[:, part]).square().sum(dim=0)
            if len(gram):
                total[k, 1:] += share * ((gram @ signs) * signs).sum(dim=0)
    return total


def permuted_means(measures: Sequence[HSIC], strata: Sequence[Stratum]) -> Tensor:
    """Return the mean of HSIC_w over all permutations of rows, shape ``(k,)``; weights travel with s."""
    total = torch.zeros(len(measures), dtype=torch.float64)
    for stratum in varying(strata):
        seen = feature_sums(measures, stratum)
        widths = zip(*(cross.shape for cross in seen.cross), strict=True)
        traces = [
            torch.stack([part.sum() for part in gram.diagonal().split(own)])
            for gram, own in zip((seen.gram_z, seen.gram_s), widths, strict=True)
        ]
        total += stratum.share * traces[0] * traces[1] / (len(stratum.z) - 1)
    return total


def _draw_rows(chance: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return numbers drawn with replacement; torch.multinomial takes no more than 2^24 of them."""
    edges = chance.cumsum(dim=0)
    draws = torch.rand(count, generator=generator, dtype=torch.float64) * edges[-1]
    return torch.searchsorted(edges, draws, right=True).clamp_max(len(chance) - 1)
