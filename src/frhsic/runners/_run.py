"""From a source to one sketch: which pieces go together, and in which order sketches are added up."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from frhsic._checks import ArgumentError
from frhsic.runners._engines import Engine, Local
from frhsic.runners._partials import Partials
from frhsic.runners._work import Job, SourceColumns, Unit
from frhsic.sketching import HSICSketch
from frhsic.sources import Piece, Source, cut_runs

# Rows of a unit of work, about a second, but at most so many units: their sketches of some megabytes each are
# sent, written and added up. Neither depends on the engine, which must not change the result.
_ROWS, _UNITS = 1_000_000, 1_024


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run."""

    rows: int  # read, or found among the partials
    all_rows: int | None  # None if it is not known before reading
    pieces: int  # complete ones
    all_pieces: int
    found: int  # pieces among the partials of an earlier run
    seconds: float  # since the start

    def __str__(self) -> str:
        rows = f"{self.rows:,} rows" if self.all_rows is None else f"{self.rows:,} of {self.all_rows:,} rows"
        found = f" ({self.found} found)" if self.found else ""
        return f"{rows}, {self.pieces} of {self.all_pieces} pieces{found}, {self.seconds:.0f} s"


def sketch_source(
    source: Source,
    sketch: HSICSketch,
    *,
    z: str | Sequence[str],
    s: str | Sequence[str],
    weights: str | None = None,
    given: str | None = None,
    ids: str | None = None,
    groups: str | None = None,
    engine: Engine = Local(),  # noqa: B008
    partials: str | os.PathLike[str] | None = None,
    progress: Callable[[RunProgress], None] | None = None,
) -> HSICSketch:
    """Sketch all rows of a source.

    The result is the same, bit by bit, for each engine and number of workers on machines of one kind, also
    after workers died.

    Parameters
    ----------
    source : Source
        From ``open_source`` or ``open_sql``. Other columns than those named here are not read. Rows with
        missing values are left out if it was opened with ``allow_missing``.
    sketch : HSICSketch
        An empty one with the kernels and features to use; it stays empty.
    z, s : str or list of str
        Columns.
    weights, given : str, optional
        Columns, as in ``HSICSketch.update``.
    ids : str, optional
        A column of integers that tells rows apart, which draws groups and stored rows; by default the name
        of the file and the number of the row in it.
    groups : str, optional
        The column of whole numbers or strings that tells independent units apart, where a unit (a customer)
        may have several rows: see :meth:`HSICSketch.update`.
    engine : Engine, default=Local()
        ``Local()``, ``Pool(workers)`` or ``Ray(address)``. A stream or a database can only be read locally.
    partials : path, optional
        A folder, created if it does not exist, for the sketches of parts: a run that ended early continues
        from them if the files of the source are unchanged. They hold some of the rows as they are. Delete the
        folder when you no longer need it.
    progress : callable, optional
        Called with a ``RunProgress`` after each batch (``Local``, ``Pool``) or part (``Ray``).

    Returns
    -------
    HSICSketch

    Raises
    ------
    ValueError, OSError
        If a file is damaged, changed or missing; the message names it.
    RuntimeError
        If workers die repeatedly over the same file.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from frhsic.kernels import Gaussian
    >>> from frhsic.sources import open_source
    >>> scores = open_source(pa.table({"age": range(18, 90), "score": [i % 7 for i in range(72)]}))
    >>> sketch_source(scores, HSICSketch(Gaussian(2.0), Gaussian(20.0)), z="score", s="age").n_rows
    72
    """
    z, s = ((names,) if isinstance(names, str) else tuple(names) for names in (z, s))
    columns = SourceColumns(z, s, weights, given, ids, groups)
    _check_columns(columns, source)
    if sketch.n_rows:
        got = f"one of {sketch.n_rows} rows"
        raise ArgumentError("sketch", "be empty", got, "Pass a new one, and add the two up.")
    if not isinstance(engine, Engine):
        raise TypeError(
            f"'engine' must be Local(), Pool() or Ray() of frhsic.runners. "
            f"Got '{type(engine).__name__}'. Leave it out for this process."
        )
    # Arrow's own way to a part of a schema; only sources import it.
    schema = source.schema.empty_table().select(columns.names).schema
    job = Job(replace(source, schema=schema, pieces=()), sketch.to_bytes(), columns)
    if partials is not None and not all(piece.fingerprint for piece in source.pieces):
        must = "be None for a stream or a database, which may be another one next time"
        fix = "Write the rows as Parquet files first."
        raise ArgumentError("partials", must, repr(os.fspath(partials)), fix)
    folder = None if partials is None else Partials(partials, job, sketch)
    return _add_up(_join_pieces(source.pieces), source.rows, job, sketch, engine, folder, progress)


def _add_up(
    units: Sequence[Unit],
    all_rows: int | None,
    job: Job,
    sketch: HSICSketch,
    engine: Engine,
    folder: Partials | None,
    progress: Callable[[RunProgress], None] | None,
) -> HSICSketch:
    """Return the sum of the sketches of units, from the folder or else by the engine."""
    tree, rows = _Tree(len(units)), [0] * len(units)
    start, pieces, found = time.monotonic(), 0, 0

    def report() -> None:
        if progress is not None:
            counts = (sum(rows), all_rows, pieces, sum(map(len, units)), found)
            progress(RunProgress(*counts, time.monotonic() - start))

    todo = []
    for place, unit in enumerate(units):
        known = None if folder is None else folder.load(unit)
        if known is None:
            todo.append((place, unit))
            continue
        tree.put(place, known)
        rows[place] = sum(piece.rows or 0 for piece in unit) or known.n_rows
        pieces, found = pieces + len(unit), found + len(unit)
    report()
    with contextlib.closing(engine.run(job, todo)) as parts:  # type: ignore[type-var]
        for part in parts:
            rows[part.place] = part.rows
            if part.data is not None:
                if folder is not None:
                    folder.save(units[part.place], part.data)
                tree.put(part.place, HSICSketch.from_bytes(part.data, like=sketch))
                pieces += len(units[part.place])
            report()
    assert tree.total is not None  # noqa: S101
    return tree.total


def _check_columns(columns: SourceColumns, source: Source) -> None:
    for argument, names in asdict(columns).items():
        names = [names] if isinstance(names, str) else names
        if names is None:
            continue
        absent = [name for name in names if name not in source.columns]
        if absent or not names or len(set(names)) < len(names):
            got = repr(absent[0]) if absent else "one of them twice" if names else "none"
            must = f"name columns of the source, each once: {', '.join(source.columns[:20])}"
            fix = "Correct the name, or open the source with that column."
            raise ArgumentError(argument, must, got, fix)


def _join_pieces(pieces: Sequence[Piece]) -> list[Unit]:
    """Join neighbours to units of enough rows; a piece of unknown size is a unit."""
    sizes = [_ROWS if piece.rows is None else piece.rows for piece in pieces]
    enough = max(_ROWS, -(-sum(sizes) // _UNITS))
    return [tuple(pieces[start:stop]) for start, stop in cut_runs(sizes, enough)]


class _Tree:
    """Adds up sketches in pairs of neighbours, and these in pairs, in any order of arrival."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: dict[tuple[int, int], HSICSketch] = {}
        self.total: HSICSketch | None = None

    def put(self, place: int, sketch: HSICSketch) -> None:
        """Add the sketch of a place, once for each."""
        level, size = 0, self._size
        while size > 1:
            other = place ^ 1
            if other < size:
                waits = self._waiting.pop((level, other), None)
                if waits is None:
                    self._waiting[level, place] = sketch
                    return
                sketch = sketch + waits if place < other else waits + sketch
            level, place, size = level + 1, place // 2, -(-size // 2)
        self.total = sketch
