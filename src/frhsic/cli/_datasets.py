"""The command ``frhsic datasets``."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import Annotated, Any

import typer

from frhsic._checks import ArgumentError
from frhsic._text import quote, quote_all
from frhsic.cli import _options as options
from frhsic.cli._output import echo, get_console, show_status

_Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="One of the list.")]


def datasets(name: _Name = None, output: options.TableOrNone = None, seed: options.Seed = 0) -> None:
    """List the datasets, tell about one, or write one to a file.

    Real data come from the folder FRHSIC_DATA_HOME or from their official source. Rows with unknown values
    are kept, with empty cells.

    \b
    Examples:
      frhsic datasets
      frhsic datasets u_shaped -o u_shaped.csv
    """  # noqa: D301
    loaders = _list_loaders()
    if name is None:
        _echo_list(loaders)
        return
    if name not in loaders:
        close = difflib.get_close_matches(name, loaders, n=2) or list(loaders)
        raise ArgumentError("NAME", "be a dataset", quote(name), f"Try {quote_all(close, ' or ')}.")
    options.check_output("-o", output, None, table=True)
    bunch = _load(loaders[name], seed)
    if output is None:
        echo(bunch.DESCR.strip(), wrap=False, lines=True)
        return
    q = bunch.sensitive_features.shape[1]
    sensitive = list(bunch.get("sensitive_names", ["s"] if q == 1 else [f"s{j}" for j in range(q)]))
    target = str(bunch.get("target_name", "y"))
    columns = _flatten(bunch, sensitive, target)
    import frhsic.sources

    frhsic.sources.write_table(columns, output)
    size = f"{len(bunch.data):,} rows and {len(columns)} columns"
    last = "" if bunch.target is None else f"; target: {quote(target)}"
    echo(f"Wrote {size} to {output}; sensitive: {quote_all(sensitive)}{last}.")


def _list_loaders() -> dict[str, Any]:
    """Return the functions of frhsic.datasets that return a dataset, by its name."""
    with show_status("Loading"):
        import frhsic.datasets as package
    loaders = {}
    for title in package.__all__:
        loader = getattr(package, title)
        if inspect.isfunction(loader) and inspect.signature(loader).return_annotation == "Bunch":
            loaders[title.removeprefix("fetch_").removeprefix("make_")] = loader
    return loaders


def _echo_list(loaders: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("name", style="bold")
    table.add_column("what it is")
    for title, loader in loaders.items():
        summary = (inspect.getdoc(loader) or "").splitlines()[0]
        table.add_row(Text(title), Text(re.sub(r"^(Load|Draw) ", "", summary)))
    get_console().print(table)
    echo()
    echo("Write one to a file: frhsic datasets u_shaped -o u_shaped.csv")


def _load(loader: Any, seed: int) -> Any:
    """Load with every row, with empty cells, and as arrays, which need no other library."""
    parameters = inspect.signature(loader).parameters
    keeping = {"drop": "category", "impute": "keep"}
    arguments: dict[str, Any] = {"random_state": seed, "as_frame": False}
    if "missing" in parameters and parameters["missing"].default in keeping:
        arguments["missing"] = keeping[parameters["missing"].default]
    return loader(**{name: value for name, value in arguments.items() if name in parameters})


def _flatten(bunch: Any, sensitive: list[str], target: str) -> dict[str, Any]:
    """Return features, sensitive columns, target and weight as one dict of plain columns."""
    import numpy as np

    names = [*bunch.feature_names, *sensitive]
    labels = bunch.get("categories", {})
    columns: dict[str, Any] = {}
    for name, values in zip(names, np.hstack((bunch.data, bunch.sensitive_features)).T, strict=True):
        columns[name] = values
        if name in labels:  # codes, in the order of the labels
            codes = np.unique(values, return_inverse=True)[1]
            columns[name] = [None if labels[name][code] == "?" else labels[name][code] for code in codes]
        elif (values == values.round()).all():
            columns[name] = values.astype(np.int64)
    if bunch.target is not None:
        columns[target] = np.asarray(bunch.target)
    if bunch.get("sample_weight") is not None:
        columns.setdefault(bunch.weight_name, np.asarray(bunch.sample_weight))
    return columns
