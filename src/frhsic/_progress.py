"""A progress bar for people: in a terminal, once something has lasted two seconds, and silent elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

_PATIENCE = 2.0


class Progress:
    """Counts steps; draws a bar on stderr if that is a terminal and rich is installed.

    Examples
    --------
    >>> with Progress("training", 10) as bar:
    ...     bar.advance(10)
    """

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._done = 0
        self._start = time.monotonic()
        self._bar: Any = None
        self._wanted = sys.stderr.isatty()

    def advance(self, steps: int = 1) -> None:
        """Count steps."""
        self._done += steps
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif self._wanted and time.monotonic() - self._start > _PATIENCE:
            self._open()

    def _open(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import Progress as Bar
        except ImportError:
            self._wanted = False
            return
        self._bar = Bar(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._title, total=self._total, completed=self._done)
        self._bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
