"""What ``train`` and ``frontier`` share: reading a table, test rows, and judging a model."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic._text import number, quote, quote_all, to_line
from frhsic.cli._input import drop_empty, list_columns, read_columns
from frhsic.cli._options import parse_kinds, parse_placeholders
from frhsic.cli._output import echo, echo_warnings, show_status
from frhsic.cli._verdicts import Verdict, judge_limits

if TYPE_CHECKING:
    import pyarrow as pa

    from frhsic.engine.limits import Key, Reached

_CHUNK = 65_536  # rows that a prediction holds at a time
_MOST_LABELS = 100
MODELS = ("network", "lightgbm", "xgboost")
REPAIR = "repair"  # of the scores of the others, on a frontier
_NAMES = {
    "gap": "Gap of {what}",
    "rank_gap": "Rank gap of {what}",
    "gdp": "GDP of {what}",
    "gap_worst": "Gap of decisions by {what} at the worst cut-off",
    "normalized_hsic": "Normalised HSIC of {what}",
    "gap_at": "Gap of decisions by {what} at {cutoff:g}",
}


@dataclass(frozen=True)
class TrainingTable:
    """A table to train on: the columns and how they are taken."""

    file: Path
    target: str
    sensitive: Sequence[str]
    task: str
    kind: Sequence[str] | None
    weight: str | None
    drop: Sequence[str] | None
    keep_sensitive: bool
    drop_missing: bool
    missing_values: str | None

    def __post_init__(self) -> None:
        if self.task not in ("auto", "classification", "regression"):
            must = "be auto, classification or regression"
            raise ArgumentError("--task", must, quote(self.task), "Choose one.")
        parse_kinds(self.kind, self.sensitive)

    def read(self) -> TrainingData:
        """Read the table, and split it into features, target, sensitive columns and weight."""
        named = {"--target": self.target, "--sensitive": self.sensitive, "--weight": self.weight}
        placeholders = parse_placeholders(self.missing_values)
        table = read_columns(self.file, {**named, "--drop": self.drop}, placeholders, every=True)
        if self.drop_missing:
            table = drop_empty(table, list_columns(named))
        dropped = {self.target, self.weight, *(self.drop or ())}
        if not self.keep_sensitive:
            dropped.update(self.sensitive)
        features = [name for name in table.column_names if name not in dropped]
        if not features:
            must = "have columns beside target, weight and sensitive ones"
            raise ArgumentError("FILE", must, "none", "Drop fewer columns.")
        with show_status("Loading"):
            import frhsic.data
        y, classes, why = _read_target(table.column(self.target), self.task)
        kinds = parse_kinds(self.kind, self.sensitive)
        s = frhsic.data.to_sensitive(table.select(list(dict.fromkeys(self.sensitive))), kinds=kinds)
        for name, labels in zip(s.names, s.categories, strict=True):
            if labels is not None and len(labels) > _MOST_LABELS:
                must = f"have at most {_MOST_LABELS} labels in a categorical column"
                got = f"{len(labels):,} in {quote(name)}"
                raise ArgumentError("--sensitive", must, got, "Merge labels or name another column.")
        w = None
        if self.weight is not None:
            w = frhsic.data.to_vector(table.column(self.weight), name="sample_weight").numpy()
        what = f"{'classifier' if classes else 'regression'} of {quote(self.target)} ({why})"
        return TrainingData(table, table.select(features), y, s, w, classes, what)


@dataclass(frozen=True)
class TrainingData:
    """What models are trained on and judged by; ``classes`` is empty for a regression."""

    table: Any
    x: Any
    y: Any
    s: Any
    w: Any
    classes: list[Any]
    what: str

    @property
    def width(self) -> str:
        """The features in words."""
        return f"{self.x.num_columns} features: {quote_all(self.x.column_names)}"

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Any) -> TrainingData:
        """Return some rows."""
        w = None if self.w is None else self.w[rows]
        table, x = self.table.take(rows), self.x.take(rows)
        return replace(self, table=table, x=x, y=self.y[rows], s=self.s[rows], w=w)

    def make_model(self, kind: str, epochs: int, **arguments: Any) -> Any:
        """Return a pipeline of a table encoder and a classifier or regressor, a network or trees."""
        from sklearn.pipeline import make_pipeline

        import frhsic.boosting
        import frhsic.estimators

        made: Any
        if kind == "network":
            network = (frhsic.estimators.FRHSICRegressor, frhsic.estimators.FRHSICClassifier)
            made = network[bool(self.classes)](epochs=epochs, **arguments)
        else:
            trees = (frhsic.boosting.FRHSICBoostingRegressor, frhsic.boosting.FRHSICBoostingClassifier)
            made = trees[bool(self.classes)](backend=kind, **arguments)  # type: ignore[arg-type]
        return make_pipeline(frhsic.estimators.TableEncoder(), made)


def parse_models(text: str, *, known: Sequence[str] = MODELS) -> list[str]:
    """Return the kinds of model of --model, each once, if their libraries are installed."""
    import importlib.util

    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        must = f"name some of {', '.join(known)}, each once"
        raise ArgumentError("--model", must, quote(text), "Write lightgbm, say.")
    for name in names:
        if name not in ("network", REPAIR) and importlib.util.find_spec(name) is None:
            extra = "trees" if name == "lightgbm" else name
            fix = f"Install it: pip install 'frhsic[{extra}]'."
            raise ArgumentError("--model", "name a library that is installed", quote(name), fix)
    return names


@dataclass(frozen=True)
class Holdout:
    """Test rows, which nothing has seen, and where they are written."""

    share: float
    path: Path | None

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            must = "be a share from 0 to below 1"
            raise ArgumentError("--holdout", must, f"{self.share:g}", "Pass 0.2, say.")
        if self.path is not None and self.share == 0:
            raise ArgumentError("--save-holdout", "come with --holdout", "none", "Add --holdout 0.2, say.")

    def split(self, data: TrainingData, seed: int) -> tuple[TrainingData, TrainingData]:
        """Return rows to train on and test rows, of equal shares of each class."""
        import numpy as np
        from sklearn.model_selection import train_test_split

        every = np.arange(len(data))
        if self.share == 0:
            return data, data.take(every[:0])
        options = {"test_size": self.share, "random_state": seed}
        try:
            rows, held = train_test_split(every, stratify=data.y if data.classes else None, **options)
        except ValueError:  # a class of a single row
            rows, held = train_test_split(every, **options)
        return data.take(np.sort(rows)), data.take(np.sort(held))

    def write(self, held: TrainingData) -> None:
        """Write the test rows, if there is a path for them."""
        import frhsic.sources

        if self.path is None:
            return
        frhsic.sources.write_table(held.table, self.path)
        echo(f"Wrote {len(held):,} test rows to {self.path}.")


def _read_target(column: Any, task: str) -> tuple[Any, list[Any], str]:
    """Return the target as an array, its classes (none for a number), and why it was taken so."""
    import numpy as np

    import frhsic.data

    split = frhsic.data.split_labels(column, name="y").kept
    labels = [one.value for one in split]
    text = any(isinstance(label, str | bool) for label in labels)
    why = f"--task {task}"
    if task == "auto":
        task = "classification" if text or len(labels) == 2 else "regression"
        why = f"{len(labels)} classes"
        if task == "regression":
            why = f"a number with {len(labels):,} values; for classes pass --task classification"
    if task == "regression":
        return frhsic.data.to_vector(column, name="y").numpy(), [], why
    if len(labels) > _MOST_LABELS:
        got = f"{len(labels):,} different values"
        fix = "Name another column, or pass --task regression for a number."
        raise ArgumentError("--target", f"have at most {_MOST_LABELS} classes", got, fix)
    y = np.empty(sum(len(one.rows) for one in split), dtype=np.array(labels).dtype)
    for one in split:
        y[one.rows.numpy()] = one.value
    return y, labels, why


def echo_judgement(
    model: Any,
    rows: str,
    data: TrainingData,
    *,
    seed: int | None = None,
    limits: Iterable[Key] = (),
) -> None:
    """Print performance, and the dependence of each score on each sensitive column.

    With a seed, the dependence comes with an interval, which only rows that were not trained on have; so does
    what is limited.
    """
    import numpy as np
    from sklearn.metrics import accuracy_score, r2_score

    from frhsic.engine.limits import Key

    keys = dict.fromkeys([*limits, Key("gdp")])
    with echo_warnings():
        scores = predict_scores(model, data.x, data.s)
    y, w = data.y, data.w
    columns = list(scores.values())
    if data.classes:
        best = columns[0] > 0.5 if len(columns) == 1 else np.argmax(columns, axis=0)
        right = accuracy_score(y, model[-1].classes_[best.astype(int)], sample_weight=w)
        most = max(float(np.average(y == label, weights=w)) for label in data.classes)
        performance = f"accuracy {right:.3f} (the commonest class alone: {most:.3f})"
    else:
        performance = f"R^2 {r2_score(y, columns[0], sample_weight=w):.3f}"
    echo(f"On {rows} ({len(y):,}): {performance}.")
    for column, values in scores.items():
        what = "the score" if column == "score" else quote(column)
        for attribute, key in itertools.product(data.s.names, keys):
            name = _NAMES[key.measure].format(cutoff=key.cutoff, what=what)
            value = _measure(values, data.s.columns([attribute]), data.w, key, seed)
            echo(f"  {name} on {to_line(attribute)}: {value}.")


def judge_model(
    model: Any, limits: Mapping[Key, float], reached: Sequence[Reached], held: TrainingData, seed: int
) -> list[Verdict]:
    """Return a verdict on each limit of a model, by what steered it and by test rows if there are some."""
    scores = {}
    if limits and len(held):
        with echo_warnings():
            scores = predict_scores(model, held.x, held.s)
    where = f"on {len(held):,} test rows"
    hint = "No test rows show whether it is kept: --holdout 0.2 keeps some."
    return judge_limits(limits, reached, scores, held.s, held.w, seed=seed, where=where, hint=hint)


def _measure(values: Any, s: Any, w: Any, key: Key, seed: int | None) -> str:
    """Return the dependence of a score on one column in words."""
    import torch

    import frhsic.inference
    from frhsic.engine.limits import make_measure
    from frhsic.engine.meter import find_gap

    if seed is None:  # only gaps are limited or shown on rows that were trained on
        weights = None if w is None else torch.from_numpy(w)
        return number(find_gap(key, torch.from_numpy(values), s, weights)[0])
    with echo_warnings():
        found = frhsic.inference.confidence_interval(
            values, s, dependence=make_measure(key), random_state=seed, sample_weight=w
        )
    rows = "" if found.plug_in is None else f"on these rows {number(found.plug_in)} with what chance adds, "
    return (
        f"{number(found.estimate)}, {found.confidence_level:.0%} interval {number(found.low)} to "
        f"{number(found.high)}; {rows}under independence {number(found.chance or 0.0)} on average, "
        f"95% below {number(found.chance_high or 0.0)}"
    )


def predict_scores(model: Any, x: pa.Table, s: Any = None) -> dict[str, Any]:
    """Return the columns that a model writes, computed a few rows at a time; repair needs S."""
    import numpy as np

    import frhsic.data
    from frhsic._progress import Progress

    last = split_model(model)[1]
    classes = getattr(last, "classes_", None)
    predict = model.predict if classes is None else model.predict_proba
    parts = []
    with Progress("predicting", x.num_rows) as bar, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        for start in range(0, x.num_rows, _CHUNK):
            part = x.slice(start, _CHUNK)
            rows = part if last is not model else frhsic.data.to_matrix(part).numpy()
            own = {"sensitive_features": s[start : start + _CHUNK]} if is_repaired(model) else {}
            parts.append(predict(rows, **own))
            bar.advance(part.num_rows)
    found = np.concatenate(parts)
    if classes is None or len(classes) == 2:
        return {"score": found if classes is None else found[:, 1]}
    return {f"score_{label}": found[:, j] for j, label in enumerate(classes)}


def is_repaired(model: Any) -> bool:
    """Return whether the scores of a model are repaired, so that it needs S."""
    import frhsic.repair

    return isinstance(split_model(model)[1], frhsic.repair.RepairedModel)


def split_model(model: Any) -> tuple[Any, Any]:
    """Return the first and the last step of a pipeline, or the model twice."""
    from sklearn.pipeline import Pipeline

    return (model[0], model[-1]) if isinstance(model, Pipeline) else (model, model)
