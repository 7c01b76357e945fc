"""The command ``frhsic predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from frhsic._checks import ArgumentError
from frhsic._text import quote, quote_all
from frhsic.cli import _options as options
from frhsic.cli._errors import take_sentence
from frhsic.cli._input import read_columns
from frhsic.cli._options import argument, option
from frhsic.cli._output import count_formulas, echo, echo_formulas, show_status
from frhsic.cli._training import predict_scores, split_model

_Model = Annotated[Path, argument("MODEL", "A file of frhsic train.")]
_Keep = Annotated[
    list[str] | None, option("--keep COL", "A column to write beside the score; may be repeated.")
]


_Backend = Annotated[
    str | None,
    option(
        "--backend NAME",
        "Of trees: lightgbm or xgboost, whose own parser reads the model. Name it if you trust the file.",
    ),
]


def predict(
    model: _Model,
    file: options.File,
    output: options.Table,
    keep: _Keep = None,
    backend: _Backend = None,
    missing_values: options.MissingValues = None,
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
        options.check_output("-o", output, other, table=True)
    loaded = _load(model, backend)
    features = _list_features(loaded)
    columns = {"the model": features, "--keep": keep}
    table = read_columns(file, columns, options.parse_placeholders(missing_values))
    scores = predict_scores(loaded, table.select(features))
    kept = list(dict.fromkeys(keep or ()))
    for name in kept:
        if name in scores:
            raise ArgumentError("--keep", "not name a column that is written", quote(name), "Rename it.")
    import frhsic.sources

    frhsic.sources.write_table({name: table.column(name) for name in kept} | scores, output)
    classes, meaning = getattr(split_model(loaded)[1], "classes_", None), "the predicted number"
    if classes is not None:
        meaning = f"probability of {quote(str(classes[1])) if len(classes) == 2 else 'each class'}"
    echo(f"Wrote {table.num_rows:,} rows to {output}: {quote_all(list(scores))} ({meaning}).")
    echo_formulas({name: count_formulas(table.column(name)) for name in kept}, output)


def _load(path: Path, backend: str | None) -> Any:
    with show_status("Loading"):
        import frhsic.persistence
    shown = quote(str(path))
    if not path.exists():
        raise ArgumentError("MODEL", "be a file", f"{shown}, which does not exist", "Check the path.")
    if backend not in (None, "lightgbm", "xgboost"):
        must = "be lightgbm or xgboost"
        raise ArgumentError("--backend", must, quote(str(backend)), "Leave it out for a network.")
    try:
        return frhsic.persistence.load(path, backend=backend)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        if isinstance(error, ArgumentError) and error.argument == "backend":
            fix = error.fix.replace("backend='", "--backend ").replace("'.", ".")
            raise ArgumentError("--backend", error.must, error.got, fix) from None
        must = "be a file that 'frhsic train' or frhsic.save wrote"
        got = f"{shown}, which is none or is damaged ({take_sentence(error)})"
        raise ArgumentError("MODEL", must, got, "Train it again or copy it anew.") from None


def _list_features(model: Any) -> list[str]:
    import frhsic.estimators

    first, last = split_model(model)
    if isinstance(last, frhsic.estimators.FRHSICEncoder):
        fix = "Use its 'transform' in Python."
        raise ArgumentError("MODEL", "predict a target", "an FRHSICEncoder", fix)
    names = getattr(first, "feature_names_in_", None)
    if names is None:
        fix = "Use its 'predict' in Python, or train it on a table."
        got = "one that was trained on an array"
        raise ArgumentError("MODEL", "know the names of its columns", got, fix)
    return [str(name) for name in names]
