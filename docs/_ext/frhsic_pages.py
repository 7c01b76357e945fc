"""Pages made from the code: the API by package, and the command line."""

import importlib
import inspect
from pathlib import Path
from typing import Any

import typer
from see_also import related, section

import frhsic
from frhsic.cli._app import app

# In the order in which a reader meets them.
PACKAGES = (
    "auditing",
    "report",
    "inference",
    "inference.bounds",
    "table",
    "dependence",
    "kernels",
    "penalty",
    "estimators",
    "boosting",
    "repair",
    "engine",
    "selection",
    "baselines",
    "metrics",
    "testing",
    "integrations.mlflow",
    "sources",
    "sketching",
    "runners",
    "persistence",
    "data",
    "datasets",
)


def no_arguments(gallery_conf: Any, script_vars: Any) -> list[str]:  # noqa: ARG001
    """Return the arguments of an example of the gallery: none."""
    return []


def write_api(folder: Path) -> None:
    """Write a page for each public package, with a table of its names."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for name in PACKAGES:
        module = importlib.import_module(f"frhsic.{name}")
        title = f"frhsic.{name}"
        names = "\n".join(f"   {one}" for one in module.__all__)
        doc = inspect.getdoc(module) or ""
        text = f"{title}\n{'=' * len(title)}\n\n{doc}\n\n.. currentmodule:: {title}\n\n"
        write(
            folder / f"{name}.rst",
            f"{text}.. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n{names}\n",
        )
        pages.append(name)
    top = "\n".join(f"   {one}" for one in frhsic.__all__)
    tree = "\n".join(f"   {page}" for page in pages)
    write(
        folder / "index.rst",
        "API\n===\n\nThe names of ``frhsic`` itself; each has its page in the package that defines it.\n\n"
        f".. currentmodule:: frhsic\n\n.. autosummary::\n   :nosignatures:\n\n{top}\n\n"
        f".. toctree::\n   :maxdepth: 1\n   :caption: Packages\n\n{tree}\n",
    )


def write_commands(path: Path) -> None:
    """Write the page of the commands, with every option as the command itself describes it."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="frhsic")
    parts = ["# All options", "", "Made from the commands. `frhsic COMMAND --help` prints the same.", ""]
    for name, one in command.commands.items():
        summary, _, rest = inspect.cleandoc(one.help or "").replace("\b\n", "").partition("\n\n")
        parts += [f"## frhsic {name}", "", " ".join(summary.split()), "", "```text", rest.rstrip(), "```", ""]
        parts += ["| option | |", "| --- | --- |"]
        inner = typer.Context(one, info_name=name, parent=context)
        for option in one.get_params(inner):
            label, text = option.get_help_record(inner) or (option.human_readable_name, "")
            parts.append(f"| `{label}` | {_cell(text)} |")
        parts.append("")
    write(path, "\n".join(parts))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*")


def write(path: Path, text: str) -> None:
    """Write a page if it changed, so that an unchanged one is not built again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def complete_docstring(site: Any, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Add "See Also", and escape the bars of |x - y|, which reStructuredText takes for substitutions."""
    own = name.removeprefix("frhsic.")
    if isinstance(item, dict):  # its docstring is that of dict
        lines[:] = ["A mapping of names to values, in the order in which they are shown.", ""]
    if related(own) and "See Also" not in lines:
        at = next((i for i, line in enumerate(lines) if line in ("Notes", "Examples")), len(lines))
        lines[at:at] = section(own)
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("``")  # code is left alone
            lines[i] = "``".join(part if k % 2 else part.replace("|", r"\|") for k, part in enumerate(parts))


def setup(site: Any) -> dict[str, bool]:
    """Write the pages into the source folder, before Sphinx looks for pages; git ignores them."""
    folder = Path(site.srcdir) / "reference"
    write_api(folder / "api")
    write_commands(folder / "options.md")
    site.setup_extension("sphinx.ext.autodoc")
    site.connect("autodoc-process-docstring", complete_docstring, priority=100)  # before numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}
