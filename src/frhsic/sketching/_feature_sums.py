"""What the sums of a sketch say about all rows: sums of products of scaled features, spectra, groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from frhsic.sketching._state import State

# Features that vary by less than this share of their squared length vary no more than by rounding.
_RESOLVED = {torch.float32: 1e-6, torch.float64: 1e-12}


class ProductSums(NamedTuple):
    """Sums F and S of products of features, ready for ``hsic_of_sums``."""

    first: Tensor
    second: Tensor
    diagonal_z: float | None
    diagonal_s: float | None


class Atoms(NamedTuple):
    """Where one side has mass: its values, the knots of a grid, or the stored rows."""

    rows: Tensor  # (K, 1 + ...), augmented features
    powers: Tensor  # (P, K), sums of weights and of their squares
    whole: bool  # whether all rows are in it, not the stored ones alone
    diagonal: float | None  # k(x, x) where it is the same for all x

    def products(self) -> ProductSums:
        """Return sums of products of the features with themselves."""
        first, second = ((power[:, None] * self.rows).mT @ self.rows for power in self.powers[[0, -1]])
        return ProductSums(first, second, self.diagonal, self.diagonal)

    def features(self) -> tuple[Tensor, Tensor]:
        """Return the features of the rows with mass, ``(K, r)``, and that mass."""
        mass, end = self.powers[0], self.rows.shape[1] - (self.diagonal is None)
        return self.rows[mass > 0, 1:end], mass[mass > 0]


@dataclass(frozen=True, eq=False)
class FeatureSums:
    """The rows of a sketch as features phi of z and psi of s: valid until rows are added to it."""

    _state: State

    @property
    def weighted(self) -> bool:
        return self._state.weighted

    @property
    def diagonal_z(self) -> float | None:
        """k(z, z) where it is the same for all z."""
        return self._state.plan.map_z.diagonal

    @property
    def diagonal_s(self) -> float | None:
        """l(s, s) where it is the same for all s."""
        return self._state.plan.map_s.diagonal if self._state.featured else self._table[1]

    @cached_property
    def _table(self) -> tuple[Tensor, float | None]:
        """(1, psi), or (1, psi, l(s, s)), of each combination of values of s, and l(s, s) if constant.

        Of combinations that occur; the others are zero.
        """
        state, plan = self._state, self._state.plan
        mass = state.sums[0, ..., 0, 0].sum(dim=0).reshape(-1)
        seen = mass > 0
        if not plan.free:  # the equality of categories: each is a feature of its own
            factor = plan.split[2]
            eye = torch.eye(len(mass), dtype=torch.float64) * factor**0.5
            return torch.cat((torch.ones_like(mass)[:, None], eye), dim=1), factor
        points = state.points(state.discrete)[seen]
        kernel = plan.kernel_s.bind(points, mass[seen] / mass.sum())
        values, vectors = torch.linalg.eigh(kernel.gram(points, points))
        kept = values > 1e-14 * values[-1:].clamp_min(1e-300)
        diagonal = kernel.diagonal(points)
        constant = bool((diagonal == diagonal[0]).all())
        parts = [torch.ones_like(diagonal)[:, None], vectors[:, kept] * values[kept].sqrt()]
        columns = torch.cat(parts if constant else [*parts, diagonal[:, None]], dim=1)
        table = columns.new_zeros((len(mass), columns.shape[1]))
        table[seen] = columns
        return table, float(diagonal[0]) if constant else None

    def augmented_s(self, s: Tensor) -> Tensor:
        """Return (1, psi), or (1, psi, l(s, s)), of rows whose categories are codes of the values here."""
        state, codes = self._state, {}
        for j in state.discrete:
            values, column = state.values[j], s[:, j].contiguous()
            codes[j] = torch.searchsorted(values, column) if isinstance(values, Tensor) else column.long()
        place = state.place(torch.zeros(len(s), dtype=torch.int64), codes, state.discrete)
        if not state.featured:
            return self._table[0][place]
        map_s, n_places = state.plan.map_s, math.prod(state.n_values(j) for j in state.discrete)
        return by_place(map_s.augmented(s), place, n_places, map_s.width)

    def _scaled(self, sums: Tensor, *, norms: bool) -> Tensor:
        """Return sums of scaled features ``(..., A, B)`` from those at each place ``(..., places, A, B)``."""
        plan = self._state.plan
        if self._state.featured:
            width = plan.map_s.width
            one, psi, rest = sums.split((1, width, sums.shape[-1] - 1 - width), dim=-1)
            psi = (psi * plan.map_s.scale).movedim(-3, -2).flatten(-2)  # (..., A, places width)
            parts = [one.sum(dim=-3), psi, rest.sum(dim=-3)]
            both = torch.cat(parts if norms else parts[:2], dim=-1)
        else:
            table, constant = self._table
            both = sums.squeeze(-1).mT @ (table if norms or constant is not None else table[:, :-1])
        scale = plan.map_z.scale_with_norms if norms else plan.map_z.scale
        return both[..., : 1 + len(scale), :] * torch.cat((scale.new_ones(1), scale))[:, None]

    def moments(self) -> ProductSums:
        """Return the sums of products of phi and psi over all groups."""
        sums = self._state.sums.sum(dim=1)
        both = self._scaled(sums.reshape(len(sums), -1, *sums.shape[-2:]), norms=True)
        return ProductSums(both[0], both[-1], self.diagonal_z, self.diagonal_s)

    @cached_property
    def z(self) -> Atoms:
        """The features of z: from its mass for one column, else from the stored rows."""
        state, map_z = self._state, self._state.plan.map_z
        if state.scores is None or state.sample.whole or not state.scores.fine(map_z.reach):
            return self._stored(map_z.augmented(state.sample.z), self.diagonal_z)
        rows = map_z.augmented(state.scores.knots[:, None])
        powers = state.scores.sums.sum(dim=1)  # (P, K)
        return Atoms(rows, powers, whole=True, diagonal=self.diagonal_z)

    @cached_property
    def s(self) -> Atoms:
        """The features of s: from its values, from its mass along a line, or from the stored rows."""
        state, line = self._state, self._state.line
        if not state.featured:
            powers = state.sums[..., 0, 0].sum(dim=1).flatten(1)
            return Atoms(self._table[0], powers, whole=True, diagonal=self.diagonal_s)
        map_s = state.plan.map_s
        if line is None or state.sample.whole or not line.fine(map_s.reach):
            return self._stored(self.augmented_s(state.sample.s), self.diagonal_s)
        mass = line.sums.sum(dim=1)
        mass = mass.reshape(len(mass), -1, mass.shape[-1])  # (P, places, K)
        places, K = mass.shape[1:]
        points = torch.zeros((K, len(state.plan.names)), dtype=torch.float64)
        points[:, state.plan.free[0]] = line.knots
        place = torch.arange(places).repeat_interleave(K)
        rows = by_place(map_s.augmented(points).repeat(places, 1), place, places, map_s.width)
        return Atoms(rows, mass.flatten(1), whole=True, diagonal=self.diagonal_s)

    def _stored(self, rows: Tensor, diagonal: float | None) -> Atoms:
        sample = self._state.sample
        return Atoms(rows, torch.stack((sample.w, sample.w.square())), sample.whole, diagonal)

    def group_terms(self) -> tuple[Tensor, Tensor]:
        """Return sum_{i in g} w_i phi~_i psi~_i' of each group, ``(G, r, q)``, and the shares of groups.

        Weights sum to one, and features are centred by their means over all rows: the terms add up to the
        cross-covariance.
        """
        sums = self._state.sums[0]
        both = self._scaled(sums.reshape(len(sums), -1, *sums.shape[-2:]), norms=False)
        both = both / both[:, 0, 0].sum()
        total = both.sum(dim=0)
        mean_z, mean_s = total[1:, 0], total[0, 1:]
        mass, first_z, first_s = both[:, 0, 0], both[:, 1:, 0], both[:, 0, 1:]
        terms = both[:, 1:, 1:] - first_z[:, :, None] * mean_s - mean_z[:, None] * first_s[:, None, :]
        return terms + mass[:, None, None] * torch.outer(mean_z, mean_s), mass

    def spectra(self) -> tuple[Tensor, Tensor]:
        """Return the eigenvalues of sum_i w_i^2 phi~_i phi~_i' / sum_i w_i^2, and those of psi.

        All are zero where the features differ by no more than their rounding.
        """
        values = []
        plan, featured = self._state.plan, self._state.featured
        exact = (plan.map_z.reach == math.inf, not featured or plan.map_s.reach == math.inf)
        for double, moments in zip(exact, (self.z.products(), self.s.products()), strict=True):
            first, second, diagonal, _ = moments
            a = len(first) - (diagonal is None)
            mean, cross = first[1:a, 0] / first[0, 0], second[1:a, 0] / second[0, 0]
            covariance = second[1:a, 1:a] / second[0, 0] - torch.outer(mean, cross) - torch.outer(cross, mean)
            own = torch.linalg.eigvalsh(covariance + torch.outer(mean, mean)).clamp_min(0.0)
            size = float(first[-1, 0] / first[0, 0]) if diagonal is None else diagonal
            least = _RESOLVED[torch.float64 if double else plan.dtype]
            values.append(own * (own.sum() > least * size))
        return values[0], values[1]


def by_place(rows: Tensor, place: Tensor, n_places: int, width: int) -> Tensor:
    """Return augmented rows with ``width`` features for each place, zero except at the place of the row.

    These are the features of the kernel times the equality of places.
    """
    if n_places == 1:
        return rows
    one, psi, norms = rows.split((1, width, rows.shape[-1] - 1 - width), dim=-1)
    apart = psi.new_zeros((len(rows), n_places, width))
    apart[torch.arange(len(rows)), place] = psi
    return torch.cat((one, apart.flatten(1), norms), dim=-1)
