"""Rows of a source as tables of counts, in passes over its pieces: the same for rows in any order."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from frhsic._checks import ArgumentError
from frhsic._text import quote
from frhsic.auditing._record import ColumnDigest, SourceHash
from frhsic.auditing._subject import MAX_LABELS
from frhsic.data import Label, Sensitive, read_columns, to_matrix, to_sensitive, to_vector
from frhsic.runners import RunProgress
from frhsic.sources import Reservoir, Source, drop_missing
from frhsic.table import (
    CELLS,
    JOINT_CELLS,
    LEVELS,
    Axis,
    Column,
    Extent,
    Floats,
    Labels,
    ScoreTable,
    Scout,
    weight_units,
)

# Rows that are counted at once, and of which the columns are read once only.
_BLOCK, _HELD_BYTES = 262_144, 128 * 2**20
# Rows of which the columns are hashed.
_HASHED_ROWS = 1_000_000_000
# Labels of a column, cells of several columns jointly, and rows where these are more.
_MOST_LABELS, _MOST_CELLS, _JOINT_ROWS = 4_096, 4_096, 20_000
# Entries that stand for a column of labels of any length.
_ENTRIES = 100_000


class Roles(NamedTuple):
    """The columns of a source by what they are."""

    score: str
    s: tuple[str, ...]
    outcome: str | None = None
    weights: str | None = None

    @property
    def by_argument(self) -> list[tuple[str, str]]:
        """Each column with the argument of ``audit`` that it is."""
        roles = [("scores", self.score), *(("sensitive_features", name) for name in self.s)]
        single = (("y_true", self.outcome), ("sample_weight", self.weights))
        return roles + [(role, name) for role, name in single if name is not None]


class Rows(NamedTuple):
    """Some rows of a source; those of weight zero are left out."""

    score: Floats
    s: tuple[Column, ...]
    outcome: Column | None  # numbers, or labels
    weights: Floats | None

    def column(self, name: int | str) -> Column:
        """Return the column of S of a number, the score, or what a numeric outcome gives in place of it."""
        if isinstance(name, int):
            return self.s[name]
        if name == "score":
            return self.score
        y = np.asarray(self.outcome)
        return {"outcome": y, "residual": y - self.score, "absolute error": np.abs(y - self.score)}[name]

    @property
    def nbytes(self) -> int:
        """The memory of these rows."""
        columns = [self.score, *self.s, self.outcome, self.weights]
        arrays = [x.codes if isinstance(x, Labels) else x for x in columns if x is not None]
        return sum(x.nbytes for x in arrays)


BESIDE = ("outcome", "residual", "absolute error")


class Sample(NamedTuple):
    """Rows drawn at random from a source, whose columns have too many cells jointly."""

    z: torch.Tensor  # (m, 1)
    s: Sensitive
    weights: torch.Tensor | None
    outcome: object  # a column, or None


class Counts(NamedTuple):
    """What is counted of the rows of a source."""

    tables: tuple[ScoreTable, ...]  # of each sensitive column and, if it has not too many cells, of all
    beside: tuple[tuple[ScoreTable, ...], ...]  # of a numeric outcome, those of ``BESIDE`` for each of these
    drawn: Sample | None  # rows in place of the table of all columns
    labels: tuple[Label, ...]  # of the outcome
    scouts: tuple[tuple[str, Scout], ...]  # of numbers, by what they are in words
    columns: tuple[ColumnDigest, ...]
    n: int


class Reader:
    """Passes over the rows of a source."""

    def __init__(
        self,
        source: Source,
        roles: Roles,
        kinds: Mapping[str, str],
        progress: Callable[[str, RunProgress], None] | None,
    ) -> None:
        self.source, self.roles, self.kinds, self.progress = source, roles, dict(kinds), progress
        self.held: list[Rows] | None = []
        self.has_whole_outcome = False

    def batches(self, what: str) -> Iterator[Any]:
        """Yield the batches of all pieces, without rows that miss a value; ``what`` is the pass in words."""
        start, rows = time.monotonic(), 0
        for done, piece in enumerate(self.source.pieces):
            for batch in self.source.batches(piece):
                yield drop_missing(batch) if self.source.allow_missing else batch
                rows += batch.num_rows
                if self.progress is not None:
                    state = RunProgress(
                        rows,
                        self.source.rows,
                        done,
                        len(self.source.pieces),
                        0,
                        time.monotonic() - start,
                    )
                    self.progress(what, state)

    def rows(self, what: str) -> Iterator[Rows]:
        """Yield the rows in blocks: those in memory, where all of them are."""
        if self.held is not None:
            yield from self.held
            return
        for batch in self.batches(what):
            if batch.num_rows:
                yield self.read(batch)

    def read(self, batch: Any) -> Rows:
        """Return the rows of a batch as numbers and labels."""
        score, n = to_matrix(batch.select([self.roles.score]), name="scores", min_rows=1), batch.num_rows
        s = to_sensitive(
            batch.select(list(self.roles.s)),
            kinds=self.kinds,
            n_rows=n,
            rows_of="scores",
            min_rows=1,
            allow_constant=True,
            numeric_labels=True,
        )
        columns: list[Column] = [
            np.ascontiguousarray(x) if known is None else Labels(x.astype(np.int64), known)
            for x, known in zip(s.values.numpy().T, s.categories, strict=True)
        ]
        rows = Rows(score[:, 0].numpy(), tuple(columns), self._read_outcome(batch), self._read_weights(batch))
        return rows if rows.weights is None or rows.weights.all() else _take(rows, rows.weights > 0.0)

    def _read_outcome(self, batch: Any) -> Column | None:
        if self.roles.outcome is None:
            return None
        (block,) = read_columns(batch.column(self.roles.outcome), "y_true")
        block = block.settle()
        if block.array.dtype.kind in "iuf" and not block.labelled:
            self.has_whole_outcome = block.array.dtype.kind != "f"
            return np.asarray(block.to_numbers())
        labels, codes = block.factor()
        return Labels(codes, labels)

    def _read_weights(self, batch: Any) -> Floats | None:
        if self.roles.weights is None:
            return None
        w = to_vector(batch.column(self.roles.weights), name="sample_weight", rows_of="scores").numpy()
        if (w < 0).any():
            got = f"{int((w < 0).sum())} negative weights"
            raise ArgumentError("sample_weight", "not be negative", got, "Set them to zero.")
        return np.asarray(w)


class Ends:
    """The first pass: ends of numbers, labels, and the largest weight."""

    def __init__(self, reader: Reader) -> None:
        self.n, self.weights = 0, (math.inf, 0.0)
        self.extents: dict[int | str, Extent] = {}
        self.labels: dict[int | str, Counter[Label]] = {}
        hashes = SourceHash(reader.roles.by_argument)
        size = 0
        for batch in reader.batches("ends"):
            if not batch.num_rows:
                continue
            rows = reader.read(batch)
            if self.n + len(rows.score) <= _HASHED_ROWS:
                hashes.add(batch)
            self._add(rows)
            size += rows.nbytes
            if reader.held is not None:
                reader.held = [*reader.held, rows] if size <= _HELD_BYTES else None
        self.columns = tuple(hashes.columns()) if self.n <= _HASHED_ROWS else ()

    def _add(self, rows: Rows) -> None:
        self.n += len(rows.score)
        names: list[int | str] = ["score", *range(len(rows.s))]
        if isinstance(rows.outcome, Labels):
            self._count("outcome", rows.outcome)
        elif rows.outcome is not None:
            names += BESIDE
        for name in names:
            column = rows.column(name)
            if isinstance(column, Labels):
                self._count(name, column)
            else:
                extent = Extent.of_rows(column)
                self.extents[name] = self.extents[name] + extent if name in self.extents else extent
        if rows.weights is not None and len(rows.weights):
            low, high = self.weights
            self.weights = min(low, float(rows.weights.min())), max(high, float(rows.weights.max()))

    def _count(self, name: int | str, column: Labels) -> None:
        counts = np.bincount(column.codes, minlength=len(column.names)).tolist()
        known = self.labels.setdefault(name, Counter())
        known.update(dict(zip(labels_of(column), counts, strict=True)))
        if len(known) > _MOST_LABELS:
            must = f"have at most {_MOST_LABELS:,} labels"
            argument = "y_true" if name == "outcome" else "sensitive_features"
            fix = "Leave an identifier out, or gather rare labels."
            raise ArgumentError(argument, must, f"more in one of its columns, {len(known):,} so far", fix)


def count_source(
    source: Source,
    roles: Roles,
    *,
    kinds: Mapping[str, str],
    thresholds: Sequence[float],
    regions: Mapping[str, Sequence[float]],
    progress: Callable[[str, RunProgress], None] | None = None,
) -> Counts:
    """Return the tables of a score beside each sensitive column, beside all of them, and of the outcome.

    ``thresholds`` of the score, and the ends of ``regions`` by column, are borders of cells.
    """
    reader = Reader(source, roles, kinds, progress)
    ends = Ends(reader)
    if not ends.n:
        raise ArgumentError("scores", "have rows", "none", "Check the file, or its missing values.")
    _check(ends, roles, kinds)
    return _Plan(reader, ends, thresholds, regions).count()


class _Plan:
    """Cells of all columns, and the last pass, which fills the tables."""

    def __init__(
        self,
        reader: Reader,
        ends: Ends,
        thresholds: Sequence[float],
        regions: Mapping[str, Sequence[float]],
    ) -> None:
        self.reader, self.ends, self.names = reader, ends, reader.roles.s
        self.thresholds, self.regions = thresholds, regions
        self.weighted = 0.0 < ends.weights[0] < ends.weights[1]
        self.known = {name: sort_labels(counts) for name, counts in ends.labels.items()}
        y = ends.extents.get("outcome")
        self.numeric = y is not None and (y.values is None or len(y.values) > MAX_LABELS)
        if y is not None and y.values is not None and not self.numeric:
            whole = reader.has_whole_outcome
            self.known["outcome"] = tuple(int(value) if whole else value for value in y.values.tolist())
        if not self.numeric:
            for name in BESIDE:
                ends.extents.pop(name, None)

    @cached_property
    def scouts(self) -> dict[int | str, Scout]:
        """The scouts of all columns of numbers: another pass, where one has more values than are listed."""
        scouts = {name: extent.scout for name, extent in self.ends.extents.items()}
        unknown = [name for name, scout in scouts.items() if scout is None]
        for rows in self.reader.rows("ranges") if unknown else ():
            for name in unknown:
                part = Scout.of_rows(np.asarray(rows.column(name)), self.ends.extents[name])
                known = scouts[name]
                scouts[name] = part if known is None else known + part
        return {name: scout for name, scout in scouts.items() if scout is not None}

    def axis(self, j: int, size: int, at: Sequence[float] = ()) -> Axis:
        """Return the cells of a column of S."""
        if j in self.known:
            return Axis.of_labels(self.known[j], self.names[j])
        return Axis.choose(self.scouts[j], size, self.names[j], at)

    def joint_axes(self) -> tuple[Axis, ...] | None:
        """Return the cells of all columns jointly; None of one column, and where they are too many."""
        axes = tuple(self.axis(j, JOINT_CELLS) for j in range(len(self.names)))
        return axes if len(axes) > 1 and math.prod(axis.size for axis in axes) <= _MOST_CELLS else None

    def blocks(self) -> Iterator[Rows]:
        """Yield large blocks of rows, with the same labels in all of them."""
        parts: list[Rows] = []
        for rows in self.reader.rows("counts"):
            parts.append(self._with_known_labels(rows))
            if sum(len(part.score) for part in parts) >= _BLOCK:
                yield _join(parts)
                parts = []
        if parts:
            yield _join(parts)

    def _with_known_labels(self, rows: Rows) -> Rows:
        s = tuple(self._encode(j, column) for j, column in enumerate(rows.s))
        y = None if rows.outcome is None else self._encode("outcome", rows.outcome)
        return rows._replace(s=s, outcome=y, weights=rows.weights if self.weighted else None)

    def _encode(self, name: int | str, column: Column) -> Column:
        known = self.known.get(name)
        if known is None:
            return column
        if not isinstance(column, Labels):
            return Labels(np.searchsorted(np.array(known, float), column), known)
        place = {label: code for code, label in enumerate(known)}
        return Labels(np.array([place[label] for label in labels_of(column)])[column.codes], known)

    def count(self) -> Counts:
        """Fill all tables in one pass."""
        joint = self.joint_axes()
        regions = [self.regions.get(name, ()) for name in self.names]
        every: list[tuple[tuple[int, ...], tuple[Axis, ...]]] = [
            ((j,), (self.axis(j, CELLS, at),)) for j, at in enumerate(regions)
        ]
        if joint is not None:
            every.append((tuple(range(len(self.names))), joint))
        labels = self.known.get("outcome", ())
        outcome = Axis.of_labels(labels, "outcome") if labels else None
        units = weight_units(self.ends.weights[1], self.ends.n) if self.weighted else None
        scores = {"score": Axis.choose(self.scouts["score"], LEVELS, "score", self.thresholds)}
        if self.numeric:
            scores |= {name: Axis.choose(self.scouts[name], LEVELS, "score") for name in BESIDE}
        tables: dict[tuple[int, str], ScoreTable] = {}
        for rows in self.blocks():
            for place, (columns, axes) in enumerate(every):
                for name, axis in scores.items():
                    by_label = name == "score" and outcome is not None
                    table = ScoreTable.from_rows(
                        np.asarray(rows.column(name)),
                        [rows.s[j] for j in columns],
                        outcome=rows.outcome if by_label else None,
                        sample_weight=rows.weights,
                        score_axis=axis,
                        s_axes=axes,
                        outcome_axis=outcome if by_label else None,
                        weight_units=units,
                    )
                    known = tables.get((place, name))
                    tables[place, name] = table if known is None else known + table
        words: dict[int | str, str] = {j: f"column '{name}'" for j, name in enumerate(self.names)}
        words |= {"score": "the score", "outcome": "the outcome"}
        places = range(len(every))
        return Counts(
            tables=tuple(tables[place, "score"] for place in places),
            beside=tuple(tuple(tables[place, name] for name in BESIDE) for place in places if self.numeric),
            drawn=self._draw() if len(self.names) > 1 and joint is None else None,
            labels=labels,
            scouts=tuple((words[name], self.scouts[name]) for name in words if name in self.scouts),
            columns=self.ends.columns,
            n=self.ends.n,
        )

    def _draw(self) -> Sample:
        """Return rows drawn at random from all."""
        reservoir, roles = Reservoir(_JOINT_ROWS), self.reader.roles
        for batch in self.reader.batches("a sample"):
            reservoir.add(batch)
        sample = reservoir.table(self.reader.source.schema)
        w = None
        if roles.weights is not None:
            w = to_vector(sample.column(roles.weights), name="sample_weight", rows_of="scores")
            sample, w = sample.filter((w > 0.0).tolist()), w[w > 0.0]
        s = to_sensitive(
            sample.select(list(roles.s)), kinds=self.reader.kinds, rows_of="scores", allow_constant=True
        )
        return Sample(
            z=to_matrix(sample.select([roles.score]), name="scores"),
            s=s,
            weights=w if self.weighted else None,
            outcome=None if roles.outcome is None else sample.column(roles.outcome),
        )


def labels_of(column: Labels) -> tuple[Label, ...]:
    """Return the labels of a column that was read."""
    return cast(tuple[Label, ...], column.names)


def sort_labels(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Return labels in the order in which :mod:`frhsic.data` sorts them."""
    return tuple(sorted(labels, key=lambda label: (isinstance(label, str), label)))


def _take(rows: Rows, at: NDArray[np.bool_]) -> Rows:
    """Return some of the rows."""

    def take(column: Column) -> Column:
        return Labels(column.codes[at], column.names) if isinstance(column, Labels) else column[at]

    return Rows(
        rows.score[at],
        tuple(map(take, rows.s)),
        None if rows.outcome is None else take(rows.outcome),
        None if rows.weights is None else rows.weights[at],
    )


def _join(parts: Sequence[Rows]) -> Rows:
    """Return the rows of all parts, which have the same labels."""

    def join(columns: Sequence[Column]) -> Column:
        first = columns[0]
        if isinstance(first, Labels):
            return Labels(np.concatenate([x.codes for x in columns if isinstance(x, Labels)]), first.names)
        return np.concatenate([x for x in columns if not isinstance(x, Labels)])

    outcomes = [part.outcome for part in parts if part.outcome is not None]
    weights = [part.weights for part in parts if part.weights is not None]
    return Rows(
        np.concatenate([part.score for part in parts]),
        tuple(join(columns) for columns in zip(*(part.s for part in parts), strict=True)),
        join(outcomes) if outcomes else None,
        np.concatenate(weights) if weights else None,
    )


# ---- input validation --------------------------------------------------------------------------------------


def _check(ends: Ends, roles: Roles, kinds: Mapping[str, str]) -> None:
    """Raise ArgumentError if a column has one value, or is text that could be meant as numbers."""
    extent = ends.extents["score"]
    if extent.least == extent.largest:
        fix = "A constant depends on nothing; pass the scores before they are rounded or thresholded."
        raise ArgumentError("scores", "have more than one value", "the same in every row", fix)
    for j, name in enumerate(roles.s):
        counts = ends.labels.get(j)
        varies = len(counts) > 1 if counts is not None else ends.extents[j].least < ends.extents[j].largest
        if not varies:
            fix = "Leave the column out or pass rows in which it differs."
            got = f"a single value in all {ends.n:,} rows"
            raise ArgumentError("sensitive_features", f"vary in column {quote(name)}", got, fix)
        if counts is not None:
            entries = [label for label, n in counts.items() for _ in range(max(1, n * _ENTRIES // ends.n))]
            own = {name: kinds[name]} if name in kinds else None
            to_sensitive({name: entries}, kinds=own, rows_of="scores")
    labels = ends.labels.get("outcome", ())
    if len(labels) > MAX_LABELS:
        must = f"have at most {MAX_LABELS} labels, or hold numbers"
        fix = "Gather rare labels."
        got = f"{len(labels):,} labels in column {quote(roles.outcome or '')}"
        raise ArgumentError("y_true", must, got, fix)
