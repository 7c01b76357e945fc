"""Two samples, or two scores of one sample, with the cells of S that both share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

import frhsic.data as data
from frhsic._checks import ArgumentError
from frhsic.data import Sensitive
from frhsic.dependence import mid_ranks
from frhsic.inference._question import Observations, check_positive, effective_units
from frhsic.numerics._cells import Cells

# Rows (or groups) of each sample.
MIN_SAMPLE = 20
# Parts into which scores are cut, at equally many rows each.
_PARTS = 16


class Pair(NamedTuple):
    """Two scores, with the cells of s that both share."""

    scores: tuple[Tensor, Tensor]  # (n,) and (n',)
    rows: tuple[Tensor, Tensor]  # which rows they are, among those of ``s``
    s: Sensitive
    w: Tensor  # (rows of s,), of sum one within each sample
    units: Tensor  # (rows of s,)
    cells: Cells
    cuts: Tensor  # between which the score is cut into parts
    paired: bool
    grouped: bool

    @classmethod
    def read(
        cls,
        scores: object,
        s: object,
        new: object,
        sample_weight: object,
        groups: object,
        *,
        ranks: bool = False,
    ) -> Pair:
        """Validate and convert the arguments of a public function; with ``ranks`` scores become mid-ranks."""
        data.check_aligned(scores=scores, s=s, new=new, sample_weight=sample_weight, groups=groups)
        rows = Observations.read(scores, s, sample_weight, groups)
        mask = None if new is None else _read_new(new, len(rows))
        _check_form(rows.z.shape[1], mask)
        if rows.w is not None:
            present = rows.w > 0
            check_positive(int(present.sum()), 8)
            rows, mask = rows.take(present), None if mask is None else mask[present]
        every = torch.arange(len(rows))
        if mask is None:
            parts, columns = (every, every), (rows.z[:, 0], rows.z[:, 1])
        else:
            parts = every[~mask], every[mask]
            columns = (rows.z[parts[0], 0], rows.z[parts[1], 0])
        w = rows.weights.clone()
        if mask is not None:
            for part in parts:
                w[part] = w[part] / w[part].sum()
        units = every if rows.groups is None else rows.groups
        for part, name in zip(parts, ("old", "new"), strict=True):
            count = len(units[part].unique())
            if count < MIN_SAMPLE:
                must = f"have at least {MIN_SAMPLE} rows (or groups) in each sample"
                raise ArgumentError("scores", must, f"{count} in the {name} one", "Take more rows.")
        size = min(
            effective_units(w[part], units[part] if rows.groups is not None else None) for part in parts
        )
        cells = Cells.of(rows.s, w / w.sum(), size)
        if ranks:
            columns = mid_ranks(columns[0], w[parts[0]]), mid_ranks(columns[1], w[parts[1]])
        u, order = torch.cat(columns).sort()
        upto = torch.cat([w[part] for part in parts])[order].cumsum(0)
        cuts = _cut_scores(u, upto / upto[-1])
        return cls(columns, parts, rows.s, w, units, cells, cuts, mask is None, rows.groups is not None)

    @property
    def samples(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Cell, weight and unit of each row of both samples."""
        code = self.cells.codes(self.s)
        return [(code[part], self.w[part], self.units[part]) for part in self.rows]

    @property
    def counts(self) -> tuple[int, int]:
        """The number of independent units of both samples."""
        old, new = (len(self.units[part].unique()) for part in self.rows)
        return old, new

    @property
    def target(self) -> str:
        """What both gaps are about."""
        name = " and ".join(self.s.names)
        if self.cells.exact:
            return f"the gap at each value of {name}"
        return f"the gap within {self.cells.size} ranges of {name} that both samples share"

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a note where groups are in both samples."""
        if self.paired or not self.grouped:
            return ()
        old, new = (self.units[part].unique() for part in self.rows)
        both = int(torch.isin(new, old).sum())
        return (f"{both:,} groups are in both samples, and allowed for.",) if both else ()


def _cut_scores(u: Tensor, upto: Tensor) -> Tensor:
    """Return cut-offs of equally many rows between them, of sorted scores and the shares up to each."""
    at = torch.searchsorted(upto, torch.linspace(0, 1, _PARTS + 1, dtype=torch.float64))
    return u[at.clamp_max(len(u) - 1)].unique()


def _read_new(new: object, n: int) -> Tensor:
    column = data.to_vector(new, name="new", min_rows=1)
    if len(column) != n:
        raise ArgumentError(
            "new", f"have {n} rows like 'scores'", len(column), "Pass one entry for each row."
        )
    if bool(((column != 0.0) & (column != 1.0)).any()):
        fix = "Pass True where a row is of the new sample."
        raise ArgumentError("new", "be true or false in each row", "other values", fix)
    return column == 1.0


def _check_form(columns: int, mask: Tensor | None) -> None:
    if columns == 1 and mask is None:
        must = "say which rows are of the new sample, for one column of scores"
        raise ArgumentError("new", must, None, "Or pass two columns: the old and the new score of each row.")
    if columns != 1 and mask is not None:
        fix = "Leave 'new' out for two scores of the same rows."
        raise ArgumentError("scores", "be one column beside 'new'", columns, fix)
    if columns > 2:
        raise ArgumentError("scores", "be two columns, old and new", columns, "Take a score of each model.")
