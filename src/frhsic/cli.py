"""The command line: tables in, sentences, tables and files out. The only module that prints.

Whatever is wrong with the input ends in one sentence on stderr and exit code 2, a gate that is not passed in
exit code 1. Everything heavy is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib.metadata
import inspect
import io
import json
import math
import os
import re
import shlex
import sys
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

    from frhsic.auditing import Attribute, Audit
    from frhsic.data import Sensitive

_MEASURES = ("gdp", "normalized_hsic", "hsic", "distance_correlation", "kernel_hgr")
_TITLES = dict(
    zip(
        _MEASURES,
        ("GDP", "normalised HSIC", "HSIC", "distance correlation", "kernel HGR"),
        strict=True,
    )
)
_CHUNK = 65_536  # rows that a prediction holds at a time
_LONGEST = 60  # characters of a name on the screen
_MOST_LABELS = 100

app = typer.Typer(
    name="frhsic",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Refusal(Exception):  # noqa: N818
    """One sentence for the person at the terminal, with the cure."""


# ---- options -----------------------------------------------------------------------------------------------

_File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A CSV, Parquet or Arrow file.", show_default=False)
]
_Sensitive = Annotated[
    list[str], typer.Option("--sensitive", metavar="COL", help="A sensitive column; may be repeated.")
]
_Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="COL=KIND",
        help="Take a sensitive column as continuous or categorical. Unless said, numbers are continuous "
        "and text is categorical.",
    ),
]
_Weight = Annotated[
    str | None, typer.Option("--weight", metavar="COL", help="How many people each row stands for.")
]
_Seed = Annotated[int, typer.Option("--seed", metavar="N", help="The same seed gives the same numbers.")]
_DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave out rows in which one of the named columns is empty.")
]


# ---- audit -------------------------------------------------------------------------------------------------


@app.command()
def audit(
    file: _File,
    score: Annotated[
        list[str],
        typer.Option("--score", metavar="COL", help="The score; several columns are a representation."),
    ],
    sensitive: _Sensitive,
    kind: _Kinds = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="COL", help="The outcome that the score predicts.")
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option("--positive", metavar="LABEL", help="The favourable outcome; else the last label."),
    ] = None,
    weight: _Weight = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="OUT.html", help="Write a report with pictures.")
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="OUT.json", help="Write every number as JSON.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="The confidence of intervals and bands.")] = 0.95,
    seed: _Seed = 0,
    trained_on: Annotated[
        bool | None,
        typer.Option(
            "--trained-on/--held-out", help="Whether the model was trained on these rows.", show_default=False
        ),
    ] = None,
    fail_above: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-above",
            metavar="MEASURE=X",
            help=f"Exit with 1 if a measure is above X on any sensitive column: {', '.join(_MEASURES)}.",
        ),
    ] = None,
    drop_missing: _DropMissing = False,
) -> None:
    """Say how much a score depends on sensitive columns, how sure that is, and what chance alone gives.

    A small dependence is small under these measures and on these rows; it is no verdict about the model.

    \b
    Examples:
      frhsic audit scores.csv --score score --sensitive age
      frhsic audit scores.csv --score score --sensitive age --sensitive sex --label income --held-out
      frhsic audit scores.csv --score score --sensitive age --report audit.html --json audit.json
      frhsic audit scores.csv --score score --sensitive age --fail-above gdp=0.5
    """  # noqa: D301
    limits = _limits(fail_above or [], several=len(set(score)) > 1)
    kinds = _kinds(kind or [], sensitive)
    if not 0 < level < 1:
        raise Refusal(f"--level must lie between 0 and 1. Got {level:g}. Pass 0.95, say.")
    if positive is not None and label is None:
        raise Refusal("--positive must come with --label. Got no outcome. Name its column with --label.")
    for option, path in (("--report", report), ("--json", as_json)):
        _check_output(option, path, file)
    table = _columns(file, {"--score": score, "--sensitive": sensitive, "--label": label, "--weight": weight})
    if drop_missing:
        table = _without_missing(table, table.column_names)
    with _busy("Loading"):
        from frhsic.auditing import audit as run_audit
    _on_one_thread()
    with _told():
        found = run_audit(
            table.select(list(dict.fromkeys(score))),
            sensitive_features=table.select(list(dict.fromkeys(sensitive))),
            y_true=None if label is None else table.column(label),
            sample_weight=None if weight is None else table.column(weight),
            kinds=kinds,
            level=level,
            random_state=seed,
            trained_on=trained_on,
            positive_label=_positive(positive, table, label),
        )
    if report is not None:
        with _busy("Drawing the report"):
            _write_report(found, report, file)
    if as_json is not None:
        _write_json(found, as_json)
    _show_audit(found, file, score)
    for path in (report, as_json):
        if path is not None:
            _say(f"Wrote {path}.")
    raise typer.Exit(_gate(found, limits))


def _limits(given: Sequence[str], *, several: bool) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        name = name.strip().lower().replace("-", "_")
        if name not in _MEASURES:
            raise Refusal(
                f"--fail-above must be MEASURE=NUMBER with one of {', '.join(_MEASURES)}. "
                f"Got {_quoted(text)}. Write --fail-above gdp=0.05, say."
            )
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not math.isfinite(limit):
            raise Refusal(
                f"--fail-above must be MEASURE=NUMBER. Got {_quoted(text)}. "
                f"Write --fail-above {name}=0.05, say."
            )
        if name == "gdp" and several:
            raise Refusal(
                "--fail-above gdp must have a single --score: GDP is a gap between mean scores. Got several. "
                "Take normalized_hsic for a representation."
            )
        limits[name] = limit
    return limits


def _gate(found: Audit, limits: dict[str, float]) -> int:
    """Say which measures are above their limits; return the exit code."""
    failed = 0
    for name, limit in limits.items():
        for one in found.attributes:
            measured = getattr(one, name)
            if measured is None:  # by distance correlation of mixed columns only, never of one column
                continue
            value = measured.value if name == "kernel_hgr" else measured.estimate
            if name == "kernel_hgr":
                sure = f"Chance alone seldom gives more than {_number(measured.floor_high)}."
            else:
                where = (
                    "lies above the limit as a whole"
                    if measured.low > limit
                    else "lies below the limit as a whole"
                    if measured.high < limit
                    else "holds the limit: these rows leave open on which side the true value is"
                )
                sure = (
                    f"The {measured.level:.0%} interval, {_number(measured.low)} to "
                    f"{_number(measured.high)}, {where}."
                )
            above = value > limit
            failed += above
            what = "is above" if above else "is not above"
            _say(
                f"{'FAILED' if above else 'Passed'}: {_TITLES[name]} on {_short(one.name)} is "
                f"{_number(value)}, which {what} {_number(limit)}. {sure}",
                error=above,
            )
    return 1 if failed else 0


def _positive(text: str | None, table: pa.Table, label: str | None) -> Any:
    """Return the label of the outcome that reads like what was typed."""
    if text is None or label is None:
        return None
    from frhsic.data import levels

    known = [one.value for one in levels(table.column(label), name="y_true").kept]
    for value in known:
        if str(value) == text:
            return value
    raise Refusal(
        f"--positive must be a label of column {_quoted(label)}. Got {_quoted(text)}. "
        f"Take one of {_listed([str(value) for value in known])}."
    )


def _write_report(found: Audit, path: Path, source: Path) -> None:
    from frhsic.report import write_report

    command = shlex.join(["frhsic", *_ARGUMENTS])
    write_report(found, path, command=command, source=str(source))


def _write_json(found: Audit, path: Path) -> None:
    from frhsic.sources import replacing

    # Only ASCII goes out, so that no control character of a column's name reaches a terminal.
    text = json.dumps(found.to_dict(), indent=2, allow_nan=False)
    with replacing(path) as file:
        file.write(text.encode() + b"\n")


def _show_audit(found: Audit, file: Path, score: Sequence[str]) -> None:
    what = f"score {_quoted(score[0])}" if found.subject == "score" else f"{found.width} columns"
    _say(f"Audit of {what} in {_short(file.name)}: {found.n:,} rows.", style="bold")
    summary = str(found)
    for name in {name for one in found.attributes for name in one.names}:
        summary = summary.replace(name, _short(name)) if len(name) > _LONGEST else summary
    for paragraph in summary.splitlines():
        if paragraph.strip():
            _say("")
            _say(paragraph)
    for one in found.every:
        _say("")
        _out().print(_numbers(one, found))
    _say("")
    _say(
        "GDP is the mean gap between the score at a value and overall, in units of the score. For the others "
        "0 is none, and 1 the most (HSIC alone has no such end). By chance: what is seen on average without "
        f"any dependence, and what is then exceeded in 1 of {round(1 / (1 - found.level)):,} samples."
    )


def _numbers(one: Attribute, found: Audit) -> Table:
    """Return the numbers on one attribute as a table that fits into 80 columns."""
    corrected = "" if one.test.adjusted is None else " (Holm)"
    title = f"Dependence on {_short(one.name)}: p = {_number(one.test.reported)}{corrected}"
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    table.box, table.show_edge, table.pad_edge = box.SIMPLE_HEAD, False, False
    table.add_column("measure", no_wrap=True)
    for heading in ("estimate", f"{found.level:.0%} interval", "by chance", "seldom above"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in _MEASURES:
        measured = getattr(one, name)
        if measured is None:
            continue
        value, interval = (
            (measured.value, "")
            if name == "kernel_hgr"
            else (measured.estimate, f"{_cell(measured.low)} to {_cell(measured.high)}")
        )
        chance = ["" if x is None else _cell(x) for x in (measured.floor, measured.floor_high)]
        table.add_row(_TITLES[name], _cell(value), interval, *chance)
    return table


# ---- train -------------------------------------------------------------------------------------------------


@app.command()
def train(
    file: _File,
    target: Annotated[str, typer.Option("--target", metavar="COL", help="The column to predict.")],
    sensitive: _Sensitive,
    lam: Annotated[
        float, typer.Option("--lam", metavar="X", help="Strength of the penalty; 0 trains without.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="MODEL", help="Where to save the model.")],
    task: Annotated[
        str, typer.Option("--task", metavar="TASK", help="auto, classification or regression.")
    ] = "auto",
    kind: _Kinds = None,
    weight: _Weight = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="COL", help="A column that is no feature.")
    ] = None,
    keep_sensitive: Annotated[
        bool, typer.Option("--keep-sensitive", help="Use the sensitive columns as features too.")
    ] = False,
    holdout: Annotated[
        float, typer.Option("--holdout", metavar="SHARE", help="Share of rows to judge on, not to train on.")
    ] = 0.0,
    save_holdout: Annotated[
        Path | None,
        typer.Option("--save-holdout", metavar="OUT", help="Write the held-out rows, for predict and audit."),
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", metavar="N", help="Passes over the rows.")] = 200,
    seed: _Seed = 0,
    drop_missing: _DropMissing = False,
) -> None:
    """Train a network whose representation depends less on the sensitive columns.

    Features are all columns other than target, weight and sensitive ones; text becomes categories, empty
    cells are filled. --lam has no unit: compare a few values on held-out rows. With --drop-missing, rows are
    left out where target, weight or a sensitive column is empty.

    \b
    Examples:
      frhsic train people.csv --target income --sensitive age --lam 3 -o model.frhsic --epochs 5
      frhsic train people.csv --target income --sensitive age --lam 3 -o model.frhsic --epochs 5
        --holdout 0.3 --save-holdout held_out.csv
    """  # noqa: D301
    if task not in ("auto", "classification", "regression"):
        raise Refusal(f"--task must be auto, classification or regression. Got {_quoted(task)}. Choose one.")
    if not 0 <= holdout < 1:
        raise Refusal(f"--holdout must be a share from 0 to below 1. Got {holdout:g}. Pass 0.2, say.")
    if save_holdout is not None and holdout == 0:
        raise Refusal("--save-holdout must come with --holdout. Got none. Add --holdout 0.2, say.")
    kinds = _kinds(kind or [], sensitive)
    _check_output("-o", output, file)
    _check_output("--save-holdout", save_holdout, file, table=True)
    if save_holdout is not None and os.path.realpath(save_holdout) == os.path.realpath(output):
        raise Refusal("--save-holdout must not be the file of the model. Got the same path. Choose another.")
    table = _columns(
        file,
        {"--target": target, "--sensitive": sensitive, "--weight": weight, "--drop": drop or []},
        every=True,
    )
    named = [target, *sensitive, *([] if weight is None else [weight])]
    if drop_missing:
        table = _without_missing(table, named)
    apart = {target, weight, *(drop or []), *([] if keep_sensitive else sensitive)}
    features = [name for name in table.column_names if name not in apart]
    if not features:
        raise Refusal(
            "FILE must have columns beside target, weight and sensitive ones. Got none. Drop fewer columns."
        )
    with _busy("Loading"):
        from sklearn.pipeline import make_pipeline

        from frhsic.data import to_sensitive, to_vector
        from frhsic.estimators import FRHSICClassifier, FRHSICRegressor, TableEncoder
        from frhsic.persistence import save
    _on_one_thread()
    y, classes, why = _target(table.column(target), task)
    s = to_sensitive(table.select(list(dict.fromkeys(sensitive))), kinds=kinds)
    for name, labels in zip(s.names, s.categories, strict=True):
        if labels is not None and len(labels) > _MOST_LABELS:
            raise Refusal(
                f"--sensitive must have at most {_MOST_LABELS} labels in a categorical column. Got "
                f"{len(labels):,} in {_quoted(name)}. Merge labels or name another column."
            )
    w = None if weight is None else to_vector(table.column(weight), name="sample_weight").numpy()
    rows, held = _split(len(y), y if classes else None, holdout, seed)
    model_class = FRHSICClassifier if classes else FRHSICRegressor
    model = make_pipeline(TableEncoder(), model_class(lam=lam, epochs=epochs, random_state=seed))
    step = model.steps[-1][0]
    x = table.select(features)
    with _told():
        model.fit(
            x.take(rows),
            y[rows],
            **{
                f"{step}__sensitive_features": s[_tensor(rows)],
                f"{step}__sample_weight": None if w is None else w[rows],
            },
        )
    save(model, output)
    _say(
        f"Trained a {'classifier' if classes else 'regression'} of {_quoted(target)} ({why}) on "
        f"{len(rows):,} rows and {len(features)} features: {_listed(features)}."
    )
    for name, part in (("the rows used for training", rows), ("held-out rows", held)):
        if len(part):
            _say("")
            _judge(model, name, x.take(part), y[part], s[_tensor(part)], classes, seed, part is held)
    if save_holdout is not None:
        from frhsic.sources import write_table

        write_table(table.take(held), save_holdout)
        _say(f"Wrote {len(held):,} held-out rows to {save_holdout}.")
    if not len(held):
        _say("Numbers on rows used for training flatter a model: judge it on others (--holdout, or audit).")
    _say(f"Saved the model to {output}.")


def _target(column: Any, task: str) -> tuple[Any, list[Any], str]:
    """Return the target as an array, its classes (none for a number), and why it was taken so."""
    import numpy as np

    from frhsic.data import levels, to_vector

    split = levels(column, name="y").kept
    labels = [one.value for one in split]
    text = any(isinstance(label, str | bool) for label in labels)
    if task == "auto":
        task = "classification" if text or len(labels) == 2 else "regression"
        why = f"{len(labels)} classes"
        if task == "regression":
            why = f"a number with {len(labels):,} values; for classes pass --task classification"
    else:
        why = f"--task {task}"
    if task == "regression":
        return to_vector(column, name="y").numpy(), [], why
    if len(labels) > _MOST_LABELS:
        raise Refusal(
            f"--target must have at most {_MOST_LABELS} classes. Got {len(labels):,} different values. "
            "Name another column, or pass --task regression for a number."
        )
    y = np.empty(sum(len(one.rows) for one in split), dtype=np.array(labels).dtype)
    for one in split:
        y[one.rows.numpy()] = one.value
    return y, labels, why


def _split(n: int, labels: Any, share: float, seed: int) -> tuple[Any, Any]:
    import numpy as np
    from sklearn.model_selection import train_test_split

    if share == 0:
        return np.arange(n), np.arange(0)
    try:
        rows, held = train_test_split(np.arange(n), test_size=share, random_state=seed, stratify=labels)
    except ValueError:  # a class of a single row
        rows, held = train_test_split(np.arange(n), test_size=share, random_state=seed)
    return np.sort(rows), np.sort(held)


def _judge(
    model: Any, name: str, x: pa.Table, y: Any, s: Sensitive, classes: list[Any], seed: int, sure: bool
) -> None:
    """Say performance, and the dependence of each score on each sensitive column."""
    import numpy as np
    from sklearn.metrics import accuracy_score, r2_score

    from frhsic.dependence import GDP
    from frhsic.inference import confidence_interval

    scores = _scores(model, x)
    if classes:
        columns = list(scores.values())
        best = columns[0] > 0.5 if len(columns) == 1 else np.argmax(columns, axis=0)
        found = model[-1].classes_[best.astype(int)]
        most = max(float((y == label).mean()) for label in classes)
        _say(
            f"On {name} ({len(y):,}): accuracy {accuracy_score(y, found):.3f} (the commonest class alone: "
            f"{most:.3f})."
        )
    else:
        _say(f"On {name} ({len(y):,}): R^2 {r2_score(y, scores['score']):.3f}.")
    for column, values in scores.items():
        what = "the score" if column == "score" else _quoted(column)
        for attribute in s.names:
            part = s.columns([attribute])
            if not sure:
                gap = float(GDP()(_tensor(values), part))
                _say(f"  GDP of {what} on {_short(attribute)}: {_number(gap)}.")
                continue
            with _told():
                interval = confidence_interval(values, part, dependence=GDP(), random_state=seed)
            _say(
                f"  GDP of {what} on {_short(attribute)}: {_number(interval.estimate)}, {interval.level:.0%} "
                f"interval {_number(interval.low)} to {_number(interval.high)}; chance alone gives "
                f"{_number(interval.floor or 0.0)}, seldom above {_number(interval.floor_high or 0.0)}."
            )


def _on_one_thread() -> None:
    """Compute on one thread.

    Batches and blocks are small, so that a second thread saves little, and on a busy machine it waits for the
    first by spinning: ten times slower. With one, the bits do not depend on the machine's cores either.
    """
    import torch

    torch.set_num_threads(1)


def _tensor(rows: Any) -> Any:
    import torch

    return torch.from_numpy(rows)


# ---- predict -----------------------------------------------------------------------------------------------


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A file of frhsic train.", show_default=False)
    ],
    file: _File,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="A .parquet, .csv or .arrow file.")
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="COL", help="A column to write beside the score; may be repeated."),
    ] = None,
) -> None:
    """Write the score of each row: the probability of the second class, or the predicted number.

    With more than two classes there is a column score_LABEL for each. The sensitive columns are not needed;
    keep them beside the score to audit it.

    \b
    Examples:
      frhsic predict model.frhsic held_out.csv -o scores.csv --keep age --keep sex --keep income
      frhsic predict model.frhsic people.csv -o scores.parquet
    """  # noqa: D301
    for other in (file, model):
        _check_output("-o", output, other, table=True)
    with _busy("Loading"):
        from sklearn.pipeline import Pipeline

        from frhsic.estimators import FRHSICEncoder
        from frhsic.persistence import load
        from frhsic.sources import write_table
    if not model.exists():
        raise Refusal(
            f"MODEL must be a file. Got {_quoted(str(model))}, which does not exist. Check the path."
        )
    try:
        loaded = load(model)
    except (ValueError, TypeError) as error:
        raise Refusal(
            f"MODEL must be a file that 'frhsic train' or frhsic.save wrote. Got {_quoted(str(model))}, "
            f"which is none or is damaged ({_sentence(str(error))}). Train it again or copy it anew."
        ) from None
    first = loaded[0] if isinstance(loaded, Pipeline) else loaded
    if isinstance(loaded if first is loaded else loaded[-1], FRHSICEncoder):
        raise Refusal("MODEL must predict a target. Got an FRHSICEncoder. Use its 'transform' in Python.")
    names = getattr(first, "feature_names_in_", None)
    if names is None:
        raise Refusal(
            "MODEL must know the names of its columns. Got one that was trained on an array. "
            "Use its 'predict' in Python, or train it on a table."
        )
    features = [str(name) for name in names]
    table = _columns(file, {"the model": features, "--keep": keep or []})
    scores = _scores(loaded, table.select(features))
    clash = [name for name in keep or [] if name in scores]
    if clash:
        raise Refusal(f"--keep must not name a column that is written. Got {_quoted(clash[0])}. Rename it.")
    kept = table.select(list(dict.fromkeys(keep or [])))
    write_table({name: kept.column(name) for name in kept.column_names} | scores, output)
    classes = getattr(loaded[-1] if first is not loaded else loaded, "classes_", None)
    meaning = (
        "the predicted number"
        if classes is None
        else f"probability of {_quoted(str(classes[1]))}"
        if len(classes) == 2
        else "probability of each class"
    )
    _say(f"Wrote {table.num_rows:,} rows to {output}: {_listed(list(scores))} ({meaning}).")


def _scores(model: Any, x: pa.Table) -> dict[str, Any]:
    """Return the columns that a model writes, computed a few rows at a time."""
    import numpy as np
    from sklearn.pipeline import Pipeline

    from frhsic.data import to_matrix
    from frhsic.engine._progress import Progress

    last = model[-1] if isinstance(model, Pipeline) else model
    classes = getattr(last, "classes_", None)
    parts = []
    with Progress("predicting", x.num_rows) as bar, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        for start in range(0, x.num_rows, _CHUNK):
            part = x.slice(start, _CHUNK)
            rows = part if last is not model else to_matrix(part).numpy()
            parts.append(model.predict(rows) if classes is None else model.predict_proba(rows))
            bar.advance(part.num_rows)
    found = np.concatenate(parts)
    if classes is None:
        return {"score": found}
    if len(classes) == 2:
        return {"score": found[:, 1]}
    return {f"score_{label}": found[:, j] for j, label in enumerate(classes)}


# ---- datasets ----------------------------------------------------------------------------------------------


@app.command()
def datasets(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One of the list.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT", help="A .parquet, .csv or .arrow file.")
    ] = None,
    seed: _Seed = 0,
) -> None:
    """List the datasets, tell about one, or write one to a file.

    Real data come from the folder FRHSIC_DATA_HOME or from their official source. Rows with unknown values
    are kept, with empty cells.

    \b
    Examples:
      frhsic datasets
      frhsic datasets u_shaped -o u_shaped.csv
    """  # noqa: D301
    with _busy("Loading"):
        import frhsic.datasets as room
    loaders = {}
    for title in room.__all__:
        loader = getattr(room, title)
        if inspect.isfunction(loader) and inspect.signature(loader).return_annotation == "Bunch":
            loaders[title.removeprefix("fetch_").removeprefix("make_")] = loader
    if name is None:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("name", style="bold")
        table.add_column("what it is")
        for title, loader in loaders.items():
            table.add_row(Text(title), Text(_summary(loader)))
        _out().print(table)
        _say("")
        _say("Write one to a file: frhsic datasets u_shaped -o u_shaped.csv")
        return
    if name not in loaders:
        close = difflib.get_close_matches(name, loaders, n=2) or list(loaders)
        raise Refusal(f"NAME must be a dataset. Got {_quoted(name)}. Try {_listed(close, ' or ')}.")
    _check_output("-o", output, None, table=True)
    bunch = _bunch(loaders[name], seed)
    if output is None:
        _say(bunch.DESCR.strip(), wrap=False)
        return
    from frhsic.sources import write_table

    columns = _flat(bunch)
    write_table(columns, output)
    n = len(next(iter(columns.values())))
    target = "" if bunch.target is None else f"; target: {_quoted(_target_name(bunch))}"
    _say(
        f"Wrote {n:,} rows and {len(columns)} columns to {output}; sensitive: "
        f"{_listed(_sensitive_names(bunch))}{target}."
    )


def _summary(loader: Any) -> str:
    """Return the first sentence of a loader's docstring, and where the data come from."""
    text = (inspect.getdoc(loader) or "").splitlines()[0]
    return re.sub(r"^(Load|Draw) ", "", text)


def _bunch(loader: Any, seed: int) -> Any:
    """Load with every row, with empty cells, and as arrays, which need no other library."""
    parameters = inspect.signature(loader).parameters
    keeping = {"drop": "category", "impute": "keep"}
    asked: dict[str, Any] = {"random_state": seed, "as_frame": False}
    if "missing" in parameters and parameters["missing"].default in keeping:
        asked["missing"] = keeping[parameters["missing"].default]
    return loader(**{name: value for name, value in asked.items() if name in parameters})


def _sensitive_names(bunch: Any) -> list[str]:
    q = bunch.sensitive_features.shape[1]
    return list(bunch.get("sensitive_names", ["s"] if q == 1 else [f"s{j}" for j in range(q)]))


def _target_name(bunch: Any) -> str:
    return str(bunch.get("target_name", "y"))


def _flat(bunch: Any) -> dict[str, Any]:
    """Return features, sensitive columns, target and weight as one dict of plain columns."""
    import numpy as np

    names = [*bunch.feature_names, *_sensitive_names(bunch)]
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
        columns[_target_name(bunch)] = np.asarray(bunch.target)
    if bunch.get("sample_weight") is not None:
        columns.setdefault(bunch.weight_name, np.asarray(bunch.sample_weight))
    return columns


# ---- input -------------------------------------------------------------------------------------------------


def _columns(file: Path, options: dict[str, Any], *, every: bool = False) -> pa.Table:
    """Read the columns that options name, or all; say which option names one that is not there."""
    from frhsic.sources import column_names, read_table
    from frhsic.sources._files import absent_columns

    names = column_names(file)
    wanted: list[str] = []
    for option, given in options.items():
        asked = [given] if isinstance(given, str) else list(given or [])
        absent = [name for name in asked if name not in names]
        if absent:
            raise Refusal(absent_columns("option", absent, names).replace("'option'", option, 1))
        wanted += asked
    uses: dict[str, str] = {}
    for option, given in options.items():
        for name in [given] if isinstance(given, str) else given or []:
            if {option, uses.setdefault(name, option)} == {"--target", "--sensitive"}:
                raise Refusal(
                    f"--target and --sensitive must be different columns. Got {_quoted(name)} for both. "
                    "Name another column for one of them."
                )
    with _busy(f"Reading {_short(file.name)}"):
        return read_table(file, columns=None if every else wanted)


def _without_missing(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    from frhsic.sources import drop_missing

    kept = drop_missing(table, columns)
    gone = table.num_rows - kept.num_rows
    if gone:
        _say(f"Left out {gone:,} of {table.num_rows:,} rows, in which a named column is empty.", error=True)
    return kept


def _kinds(given: Sequence[str], sensitive: Sequence[str]) -> dict[str, str] | None:
    kinds = {}
    for text in given:
        name, _, kind = text.rpartition("=")
        if kind not in ("continuous", "categorical") or not name:
            raise Refusal(
                f"--kind must be COL=continuous or COL=categorical. Got {_quoted(text)}. "
                f"Write --kind {_short(name or 'zone')}=categorical, say."
            )
        if name not in sensitive:
            raise Refusal(
                f"--kind must name a --sensitive column. Got {_quoted(name)}. "
                f"Take one of {_listed(sensitive)}."
            )
        kinds[name] = kind
    return kinds or None


def _check_output(option: str, path: Path | None, source: Path | None, *, table: bool = False) -> None:
    """Refuse a path that cannot be written to before any work is done."""
    if path is None:
        return
    folder = Path(os.path.realpath(path)).parent
    shown = _quoted(str(path))
    if table:
        from frhsic.sources._files import check_suffix

        try:
            check_suffix(path)
        except ValueError as error:
            raise Refusal(str(error).replace("'path'", option, 1)) from None
    if not folder.is_dir():
        raise Refusal(f"{option} must be in a folder that exists. Got {shown}. Make the folder first.")
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise Refusal(f"{option} must be a file. Got {shown}, which is a folder or device. Add a file name.")
    if source is not None and path.exists() and source.exists() and os.path.samefile(path, source):
        raise Refusal(f"{option} must not be the file that is read. Got {shown}. Choose another name.")
    if not os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise Refusal(f"{option} must be in a folder you may write to. Got {shown}. Choose another folder.")


# ---- output ------------------------------------------------------------------------------------------------


def _out() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def _err() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def _say(text: str, *, error: bool = False, style: str = "", wrap: bool = True) -> None:
    """Print a sentence; whatever users typed in it is made visible first."""
    console = _err() if error else _out()
    # A path or a name should be copied in one piece: only a terminal wraps.
    console.print(Text(_clean(text), style=style), soft_wrap=not (wrap and console.is_terminal))


def _clean(text: str) -> str:
    """Make control characters, overrides of the direction and other invisible signs visible."""
    return "".join(
        sign if sign == "\n" or unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        else sign.encode("unicode_escape", "surrogatepass").decode("ascii")
        for sign in text
    )  # fmt: skip


def _short(text: str) -> str:
    text = _clean(text).replace("\n", "\\n")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _quoted(text: str) -> str:
    return f"'{_short(text)}'"


def _listed(names: Sequence[str], joint: str = ", ") -> str:
    return joint.join(map(_quoted, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _number(x: float) -> str:
    return f"{x:.3g}" if abs(x) >= 1e-4 or x == 0 else f"{x:.1e}"


def _cell(x: float) -> str:
    """Return a number with as many decimals as its neighbours in a table."""
    return f"{x:.4f}" if abs(x) < 100 else f"{x:.4g}"


@contextlib.contextmanager
def _busy(what: str) -> Iterator[None]:
    """Show in a terminal that something is going on."""
    console = _err()
    if not console.is_terminal:
        yield
        return
    with console.status(Text(f"{what} ...")):
        yield


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Say warnings as sentences, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(str(one.message) for one in caught if one.category is UserWarning):
        _say(f"Note: {_reworded(text)}", error=True)


# ---- the door ----------------------------------------------------------------------------------------------

# What the library calls its arguments, and what they are called here; in a command of its own, see _reworded.
_WORDS = {
    "'scores_or_Z'": "--score",
    "'sensitive_features'": "--sensitive",
    "'y_true'": "--label",
    "'y'": "--target",
    "'sample_weight'": "--weight",
    "'kinds'": "--kind",
    "'level'": "--level",
    "'positive_label'": "--positive",
    "'random_state'": "--seed",
    "'lam'": "--lam",
    "'epochs'": "--epochs",
    "'X'": "FILE",
    "'path'": "FILE",
    "'columns'": "FILE",
    " (None, NaN, NaT or NA)": " empty or NaN",
    "Drop or fill these rows first.": "Fill these cells, or pass --drop-missing to leave such rows out.",
    "Encode them as numbers first; frhsic.TableEncoder does.": "Mend the entries that are no numbers, or "
    "name another column.",
    "Got strings": "Got text",
    ", turn text into numbers, or raise 'max_categories'": " or turn text into numbers",
    "Drop it, join": "Leave it out with --drop, join",
    "Drop the column.": "Leave it out with --drop.",
    "Convert them to a number, for example to years.": "Turn them into numbers, for example years, or leave "
    "the column out (train: --drop).",
    "or pass rows in which it differs": "or take a file in which it differs",
    "as in 'fit'": "as in training",
}
_ARGUMENTS: list[str] = []


def _reworded(text: str) -> str:
    for library, here in _WORDS.items():
        text = text.replace(library, here)
    # The library counts rows from 0; a person counts them from 1.
    return re.sub(r"in row (\d+)", lambda row: f"in row {int(row[1]) + 1} of the data", text)


def _sentence(text: str) -> str:
    return _reworded(text).split("\n")[0].rstrip(".")[:200]


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0, 1 for a gate not passed, 2 for what cannot be done."""
    _ARGUMENTS[:] = arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may know no Unicode
    try:
        code = _dispatch(list(arguments))
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        # Whoever read the output has seen enough (rich exits then); what is left must not fail again at exit.
        # Not 0: the gate may not have been reached.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if "FRHSIC_TRACEBACK" in os.environ:
            raise
        with contextlib.suppress(OSError):
            _say(f"Error: {_refused(error)}", error=True)
        return 2
    except KeyboardInterrupt:
        _say("Stopped.", error=True)
        return 130
    return code


# typer has its own copy of click since some version: its exceptions are found through what it exports.
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]


def _dispatch(arguments: list[str]) -> int:
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="frhsic", standalone_mode=False)
    except _ClickException as error:
        message = " ".join(str(error.format_message()).split()).rstrip(".")  # type: ignore[attr-defined]
        if type(error).__name__ == "NoArgsIsHelpError":
            _say(message, wrap=False)
            return 2
        raise Refusal(f"{message}. Look at: frhsic --help") from None
    return code if isinstance(code, int) else 0


def _refused(error: Exception) -> str:
    """Return one sentence about what went wrong."""
    if isinstance(error, Refusal):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        name = "" if error.filename is None else f" {_quoted(str(error.filename))}"
        cure = {
            errno.ENOENT: "Check the path.",
            errno.EACCES: "Ask for the permission, or choose another path.",
            errno.EPERM: "Ask for the permission, or choose another path.",
            errno.EISDIR: "Name a file, not a folder.",
            errno.ENOSPC: "Nothing was written; make room or choose another disk.",
            errno.EROFS: "Choose another folder.",
        }.get(error.errno, "Nothing was written.")
        return f"The system refused{name}: {os.strerror(error.errno)}. {cure}"
    if isinstance(error, MemoryError):
        return "There is not enough memory for this file. Take fewer rows or columns."
    if isinstance(error, ValueError | TypeError | ImportError | RuntimeError | OSError):
        return _reworded(" ".join(str(error).split()))
    return (
        f"This is a defect of frhsic ({type(error).__name__}: {_sentence(str(error))}). "
        "Set FRHSIC_TRACEBACK=1 to see where, and report it."
    )


def _version(asked: bool) -> None:
    if asked:
        _say(f"frhsic {importlib.metadata.version('frhsic')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure, reduce and certify the dependence of a model on a sensitive attribute that is a number.

    \b
    Examples:
      frhsic audit scores.csv --score score --sensitive age
      frhsic train people.csv --target income --sensitive age --lam 3 -o model.frhsic --epochs 5
      frhsic predict model.frhsic people.csv -o scores.parquet --keep age

    Exit codes: 0 done, 1 a measure is above its --fail-above, 2 something is wrong with input or output.
    """  # noqa: D301
