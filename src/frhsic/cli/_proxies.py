"""The command ``frhsic proxies``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from frhsic._checks import ArgumentError
from frhsic._text import cell, quote, to_line
from frhsic.cli import _options as options
from frhsic.cli._input import sample_rows
from frhsic.cli._options import option
from frhsic.cli._output import echo, echo_table, echo_warnings, show_status, write_bytes, write_json

_PICTURES = (".png", ".svg", ".pdf")
_SHOWN = 20  # columns in the table of the terminal

_Sensitive = Annotated[str, option("--sensitive COL", "The sensitive column.")]
_Plot = Annotated[Path | None, option("--plot OUT", "Draw them: .png, .svg or .pdf.")]


def proxies(
    file: options.File,
    sensitive: _Sensitive,
    drop: options.Drop = None,
    kind: options.Kinds = None,
    plot: _Plot = None,
    as_json: options.Json = None,
    seed: options.Seed = 0,
    missing_values: options.MissingValues = None,
) -> None:
    """Say which columns of a table stand for a sensitive column, alone and beside all others.

    For each column: normalised HSIC with its interval and test, how well it predicts the sensitive column,
    and what is lost without it and its like. Files of any size are read in pieces; at most 20,000 random rows
    are kept.

    \b
    Examples:
      frhsic proxies people.csv --sensitive age
      frhsic proxies people.csv --sensitive age --drop income --plot proxies.png --json proxies.json
    """  # noqa: D301
    kinds = options.parse_kinds(kind, [sensitive])
    options.check_outputs({"--plot": plot, "--json": as_json}, file)
    if plot is not None and plot.suffix.lower() not in _PICTURES:
        must = f"end in {', '.join(_PICTURES)}"
        raise ArgumentError("--plot", must, quote(plot.name), "Write proxies.png, say.")
    with show_status("Loading"):
        import frhsic.data
        import frhsic.inference
        import frhsic.inference.factors
        import frhsic.sources
    every = frhsic.sources.column_names(file)
    for name, column in [("--sensitive", sensitive), *(("--drop", one) for one in drop or ())]:
        if column not in every:
            raise ArgumentError(name, "name a column of the file", quote(column), "Check the name.")
    names = [name for name in every if name != sensitive and name not in (drop or ())]
    if not names:
        raise ArgumentError("FILE", "have columns beside the sensitive one", "none", "Drop fewer columns.")
    placeholders = options.parse_placeholders(missing_values)
    source = frhsic.sources.open_source(
        file, columns=[sensitive, *names], missing_values=placeholders, allow_missing=True
    )
    with show_status("Reading"):
        table, rows = sample_rows(source, seed, frhsic.inference.factors.MOST_ROWS)
    s = frhsic.data.to_sensitive(table.select([sensitive]), kinds=kinds)
    with echo_warnings():
        found = frhsic.inference.proxies(table.select(names), s, random_state=seed)
    if plot is not None:
        os.environ.setdefault("MPLBACKEND", "agg")  # files are drawn, no windows
        import frhsic.report

        write_bytes(frhsic.report.draw_proxies(found, plot.suffix.lower()[1:]), plot)
    if as_json is not None:
        write_json(found.to_dict(), as_json)
    part = "" if rows == found.n else f", of which {found.n:,} at random are used"
    echo(f"Columns that stand for {to_line(sensitive)}: {rows:,} rows{part}.", style="bold")
    headings = ["column", "HSIC", "95% interval", "p", "R^2", "lost without"]
    lines = [
        [
            to_line(one.column),
            cell(one.hsic),
            f"{cell(one.hsic_low)} to {cell(one.hsic_high)}",
            frhsic.inference.factors.format_pvalue(one.pvalue).removeprefix("p ").removeprefix("= "),
            cell(max(one.r2, 0.0)),
            "" if one.lost is None else cell(max(one.lost, 0.0)),
        ]
        for one in found.columns[:_SHOWN]
    ]
    echo_table(f"all together: R^2 {cell(max(found.r2, 0.0))}", headings, lines, bold=None)
    more = len(found.columns) - len(lines)
    echo()
    if more > 0:
        echo(f"{more} columns of a smaller HSIC are in --json.")
    echo(
        "HSIC: normalised, 0 under independence and 1 at most. p: of independence, corrected for all columns "
        "(Holm); a large one is no evidence of independence. R^2: how well the column alone predicts the "
        f"mean rank of {to_line(sensitive)}, on rows that took no part. Lost without: how much smaller it "
        "is for all columns without this one and those like it."
    )
    for note in found.notes:
        echo(note)
    for path in filter(None, (plot, as_json)):
        echo(f"Wrote {path}.")
