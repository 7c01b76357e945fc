"""The application: its commands, and the exit code of one run."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from frhsic import __version__
from frhsic.cli._audit import audit
from frhsic.cli._compare import compare
from frhsic.cli._datasets import datasets
from frhsic.cli._errors import CommandError, describe
from frhsic.cli._frontier import frontier
from frhsic.cli._output import echo
from frhsic.cli._predict import predict
from frhsic.cli._proxies import proxies
from frhsic.cli._repair import repair
from frhsic.cli._train import train
from frhsic.cli._verify import verify

app = typer.Typer(
    name="frhsic",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (audit, verify, compare, proxies, train, frontier, predict, repair, datasets):
    app.command()(_command)


def _echo_version(wanted: bool) -> None:
    if wanted:
        echo(f"frhsic {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_echo_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure, reduce and certify the dependence of a model on a sensitive attribute that is a number.

    \b
    Examples:
      frhsic audit scores.csv --score score --sensitive age
      frhsic train people.csv --target income --sensitive age -o model.frhsic --epochs 5
      frhsic predict model.frhsic people.csv -o scores.parquet --keep age

    Exit codes: 0 done, 1 a measure is above its --fail-above, a --limit is missed or no model meets
    --rule equivalent, 2 something is wrong with input or output.
    """  # noqa: D301


def _get_parser_error() -> type[Exception]:
    """Return the base class of errors about options: typer's own, or that of the click inside or below it."""
    for module, name in (("typer", "TyperException"), ("typer._click", "ClickException")):
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    return getattr(importlib.import_module("click"), "ClickException")  # noqa: B009


_ParserError = _get_parser_error()


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0, 1 for a gate not passed, 2 for an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may know no Unicode
    try:
        code = _dispatch(list(arguments))
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        # The reader of the output left (rich exits then). Not 0: the gate may not be reached yet.
        _drop_output()
        return 141
    except Exception as error:
        if "FRHSIC_TRACEBACK" in os.environ:
            raise
        with contextlib.suppress(OSError):
            echo(f"Error: {describe(error)}", error=True)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        return 2
    except KeyboardInterrupt:
        echo("Stopped.", error=True)
        return 130
    return code


def _dispatch(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments or ["--help"], prog_name="frhsic", standalone_mode=False, obj=arguments)
    except _ParserError as error:
        text = str(error.format_message())  # type: ignore[attr-defined]
        message = " ".join(text.split()).rstrip(".")
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "frhsic"
        raise CommandError(f"{message}. Look at: {path} --help") from None
    return (code if isinstance(code, int) else 0) if arguments else 2


def _drop_output() -> None:
    """Discard what could not be written, which would fail again, with another exit code, at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
