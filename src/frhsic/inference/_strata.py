"""Strata: rows, or groups of rows, that may be exchanged with one another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, check_kept, split_labels
from frhsic.inference._question import Observations, check_positive

# The null moments of Gretton et al. need six rows; below, no test has power.
MIN_TEST_ROWS = 6
# A label of `given` with fewer rows is left out.
MIN_LABEL_ROWS = 8
# Whole groups are permuted where exchanging those of equal size gives at least so many pairings.
_PAIRINGS = 720


@dataclass(frozen=True)
class Stratum:
    """Rows that may be exchanged with one another, and their share of the whole."""

    z: Tensor
    s: Sensitive
    weights: Tensor | None
    share: float
    groups: Tensor | None = None  # (n,), a code for each row; rows of one group may depend on one another


@dataclass(frozen=True, eq=False)
class Design:
    """The strata of a test, and how their rows may be paired."""

    strata: list[Stratum]
    notes: tuple[str, ...]
    weighted: bool
    of_s: bool  # whether the weights are a function of s, and so travel with it
    n_groups: int | None
    obstacle: str | None  # why whole groups cannot be exchanged

    @property
    def z(self) -> Tensor:
        return self.strata[0].z if len(self.strata) == 1 else torch.cat([one.z for one in self.strata])

    @property
    def s(self) -> Sensitive:
        return replace(self.strata[0].s, values=torch.cat([stratum.s.values for stratum in self.strata]))

    def with_z(self, z: Tensor) -> Design:
        """Return the design with other columns of z, whose rows stand in the order of the strata."""
        parts = z.split([len(stratum.z) for stratum in self.strata])
        strata = [replace(stratum, z=part) for stratum, part in zip(self.strata, parts, strict=True)]
        return replace(self, strata=strata)


def varying(strata: Sequence[Stratum]) -> list[Stratum]:
    """Return the strata where z and s vary: elsewhere pairings differ by rounding, which would be ranked."""

    def varies(x: Tensor) -> bool:
        return not bool((x == x[0]).all())

    return [stratum for stratum in strata if varies(stratum.z) and varies(stratum.s.values)]


def make_design(rows: Observations, given: object, weights_of_s: bool | None) -> Design:
    """Return the design of a test within the labels of ``given``; rows of no weight are left out."""
    w = None if rows.w is None or bool((rows.w == rows.w[0]).all()) else rows.w
    present = torch.ones(len(rows), dtype=torch.bool) if w is None else w > 0
    notes: tuple[str, ...] = ()
    if given is None:
        parts = [present.nonzero().squeeze(1)]
        check_positive(len(parts[0]), MIN_TEST_ROWS)
    else:
        parts, skipped = rows_by_label(given, present, rows_of="scores")
        if skipped:
            notes = (f"{skipped} rows of labels with fewer than {MIN_LABEL_ROWS} rows were left out.",)
    masses = [float(len(part)) if w is None else float(w[part].sum()) for part in parts]
    strata = [
        Stratum(
            rows.z[part],
            rows.s[part],
            None if w is None else w[part],
            mass / sum(masses),
            None if rows.groups is None else rows.groups[part],
        )
        for part, mass in zip(parts, masses, strict=True)
    ]
    strata, n_groups = (strata, None) if rows.groups is None else _recode_groups(strata)
    of_s = w is None or (_are_weights_of_s(strata) if weights_of_s is None else weights_of_s)
    obstacle = None if n_groups is None else _find_obstacle(strata, of_s)
    return Design(strata, notes, w is not None, of_s, n_groups, obstacle)


def _recode_groups(strata: Sequence[Stratum]) -> tuple[list[Stratum], int]:
    """Return the strata with codes 0, ..., G - 1 of the groups that are left in them, and G."""
    codes = [stratum.groups for stratum in strata if stratum.groups is not None]
    left, places = torch.cat(codes).unique(return_inverse=True)
    if len(left) < MIN_TEST_ROWS:
        must = f"be at least {MIN_TEST_ROWS}, which are then the independent units"
        raise ArgumentError("groups", must, f"{len(left)} in the rows used", "Pass more groups.")
    parts = places.split([len(code) for code in codes])
    return [replace(stratum, groups=part) for stratum, part in zip(strata, parts, strict=True)], len(left)


def _find_obstacle(strata: Sequence[Stratum], of_s: bool) -> str | None:
    """Return why whole groups cannot be exchanged, or None if they can.

    They can where s and the weights are the same in all rows of a group, each group lies in one stratum, and
    sizes repeat: at most half as many sizes as groups in all strata together, and 720 pairings (those of six
    groups of one size) or more.
    """
    if not of_s:
        return "the weights are no function of s"
    seen = [stratum.groups.unique() for stratum in strata if stratum.groups is not None]
    if len(torch.cat(seen).unique()) < sum(map(len, seen)):
        return "groups have rows in several labels of 'given'"
    n_groups, n_sizes, pairings = 0, 0, 0.0
    for stratum in strata:
        assert stratum.groups is not None  # noqa: S101
        for rows in size_classes(stratum.groups):
            values = stratum.s.values[rows]  # (groups, size, q)
            if not bool((values == values[:, :1]).all()):
                return "s varies inside groups"
            w = None if stratum.weights is None else stratum.weights[rows]
            if w is not None and not bool((w == w[:, :1]).all()):
                return "the weights vary inside groups"
            n_groups, n_sizes = n_groups + len(rows), n_sizes + 1
            pairings += math.lgamma(len(rows) + 1.0)
    if 2 * n_sizes > n_groups or pairings < math.log(_PAIRINGS) - 1e-9:
        return f"too few groups are of equal size ({n_sizes} sizes of {n_groups} groups)"
    return None


def _are_weights_of_s(strata: Sequence[Stratum]) -> bool:
    """Return whether weights are equal where s is, within each stratum, and nine rows of ten show it."""
    weights = [stratum.weights for stratum in strata if stratum.weights is not None]
    if all(bool((w == w[0]).all()) for w in weights):
        return True
    w = torch.cat(weights)
    keys = [torch.nn.functional.pad(stratum.s.values, (1, 0), value=j) for j, stratum in enumerate(strata)]
    _, value, rows = torch.cat(keys).unique(dim=0, return_inverse=True, return_counts=True)
    if int((rows == 1).sum()) > len(w) // 10:
        return False
    low = torch.full((len(rows),), torch.inf, dtype=w.dtype).scatter_reduce(0, value, w, "amin")
    high = torch.zeros(len(rows), dtype=w.dtype).scatter_reduce(0, value, w, "amax")
    return bool((high - low <= 1e-12 * high).all())


def rows_by_label(given: object, present: Tensor, rows_of: str) -> tuple[list[Tensor], int]:
    """Return the rows present of each label of ``given`` that has enough, and the number of the others."""
    split = split_labels(given, name="given")
    n = sum(len(label.rows) for label in split.kept)
    if n != len(present):
        must = f"have {len(present)} rows like '{rows_of}'"
        raise ArgumentError("given", must, n, "Pass one label for each row.")
    found = [label.rows[present[label.rows]] for label in split.kept]
    parts = [rows for rows in found if len(rows) >= MIN_LABEL_ROWS]
    if not parts:
        fix = "Merge labels, cut a number into a few bins, or leave 'given' out."
        raise ArgumentError("given", f"have a label with at least {MIN_LABEL_ROWS} rows", "none", fix)
    total, kept = (sum(map(len, some)) for some in (found, parts))
    check_kept(kept, total, n_labels=len(found), min_rows=MIN_LABEL_ROWS)
    return parts, total - kept


def size_classes(groups: Tensor) -> list[Tensor]:
    """Return the rows of the groups of each size, shape ``(groups, size)`` for each size that occurs."""
    _, place, sizes = groups.unique(return_inverse=True, return_counts=True)
    rows = place.argsort(stable=True)
    of_row = sizes[place[rows]]
    return [rows[of_row == size].reshape(-1, size) for size in sizes.unique().tolist()]


def some_rows(
    n: int, groups: Tensor | None, most: int, generator: torch.Generator, least_groups: int = 2
) -> Tensor:
    """Return random rows, at most so many; of groups whole ones, and more rows if these are large."""
    if groups is None:
        return torch.randperm(n, generator=generator)[:most]
    sizes = groups.bincount()
    order = torch.randperm(len(sizes), generator=generator)
    taken = order[: max(least_groups, int((sizes[order].cumsum(0) <= most).sum()))]
    return torch.isin(groups, taken).nonzero()[:, 0]
