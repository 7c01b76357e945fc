"""What is printed, and what is written to files."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frhsic._text import escape, quote_all, to_paragraph
from frhsic.cli._errors import describe_warning

if TYPE_CHECKING:
    from rich.console import Console


def get_console(*, error: bool = False) -> Console:
    """Return a console on stdout or stderr as it is now."""
    from rich.console import Console

    return Console(stderr=error, highlight=False, markup=False, emoji=False)


def echo(
    text: str = "", *, error: bool = False, style: str = "", wrap: bool = True, lines: bool = False
) -> None:
    """Print a sentence; breaks of lines and invisible characters that users typed are made visible first.

    With ``lines`` breaks are ours, and stay.
    """
    from rich.text import Text

    console = get_console(error=error)
    shown = escape(text if lines else to_paragraph(text))
    # A path or a name should be copied in one piece: only a terminal wraps.
    console.print(Text(shown, style=style), soft_wrap=not (wrap and console.is_terminal))


def echo_table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, bold: int | None = None
) -> None:
    """Print an empty line and a table of right-aligned numbers that fits into 80 columns."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = to_paragraph(title)
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.show_edge = table.pad_edge = False
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "measure" else "right", no_wrap=True)
    for index, row in enumerate(rows):
        table.add_row(*map(to_paragraph, row), style="bold" if index == bold else "")
    echo()
    get_console().print(table)


def count_formulas(column: Any) -> int:
    """Return how many cells of text a spreadsheet would compute, by their first character."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return 0
    return int(pc.sum(pc.match_substring_regex(column, r"^\s*[=+\-@]")).as_py() or 0)


def echo_formulas(counts: Mapping[str, int], output: Path) -> None:
    """Print a note where a spreadsheet would compute cells of a CSV that came from another file."""
    names = [name for name, count in counts.items() if count]
    if names and ".csv" in output.suffixes:
        cells = f"{sum(counts.values()):,} cells of {quote_all(names)}"
        what = "begin with =, +, - or @: a spreadsheet takes them for formulas"
        echo(f"Note: {cells} {what}. Import them as text.")


@contextlib.contextmanager
def show_status(text: str) -> Iterator[Callable[[str, object], None] | None]:
    """Show in a terminal what is going on; yield a function that shows how far something is."""
    console = get_console(error=True)
    if not console.is_terminal:
        yield None
        return
    from rich.text import Text

    with console.status(Text(f"{text} ...")) as status:
        yield lambda names, state: status.update(Text(escape(f"{names}: {state}")))


@contextlib.contextmanager
def echo_warnings() -> Iterator[None]:
    """Print warnings as sentences, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    # Those of ours: other libraries have classes of their own, but for the one that we borrow.
    ours = [one for one in caught if one.category.__name__ in ("UserWarning", "ConvergenceWarning")]
    for text in dict.fromkeys(str(one.message) for one in ours):
        echo(f"Note: {describe_warning(text)}", error=True)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file that appears whole or not at all."""
    from frhsic._files import replacing

    with replacing(path) as file:
        file.write(content)


def write_json(document: dict[str, Any], path: Path) -> None:
    """Write a document in ASCII, so that no control character of a column's name reaches a terminal."""
    text = json.dumps(document, indent=2, allow_nan=False)
    write_bytes(text.encode() + b"\n", path)
