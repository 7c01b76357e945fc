"""The command ``frhsic frontier``."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from frhsic._checks import ArgumentError
from frhsic._text import number, quote
from frhsic.cli import _options as options
from frhsic.cli._frontier_results import Frontier
from frhsic.cli._options import option
from frhsic.cli._output import echo, echo_warnings, show_status, write_bytes, write_json
from frhsic.cli._rules import Rule, parse_grid
from frhsic.cli._training import (
    MODELS,
    REPAIR,
    Holdout,
    TrainingData,
    TrainingTable,
    echo_judgement,
    is_repaired,
    judge_model,
    parse_models,
    split_model,
)
from frhsic.cli._verdicts import SAVE_MISSED, Verdict, echo_verdicts

if TYPE_CHECKING:
    import frhsic.selection

# What is limited, in the words of the table and the picture.
_WORDS = {
    "gap": "gap",
    "rank_gap": "rank gap",
    "gdp": "GDP",
    "gap_worst": "worst gap of decisions",
    "normalized_hsic": "normalised HSIC",
    "gap_at": "gap of decisions",
}
_PICTURES = (".png", ".svg", ".pdf")
_MIN_VALIDATION = 52  # rows to choose on: fewer cannot be whitened in a representation of 50 columns

_Plot = Annotated[Path | None, option("--plot OUT", "Draw the frontier: .png, .svg or .pdf.")]
_Page = Annotated[
    Path | None,
    option("--report OUT", "Write a page: models tried, what each costs and leaves, the choice; .html."),
]
_Budgets = Annotated[
    str | None,
    option(
        "--budgets LIST",
        "Shares of the dependence of a model without penalty; without --lams 0.5,0.2,0.1,0.05.",
    ),
]
_Limits = Annotated[
    str | None,
    option(
        "--limits LIST",
        "Limits instead, in the unit of the score, for one measure of the audit: gap=0.05,0.02,0.01 or "
        "gap_at:0.5=0.05,0.02.",
    ),
]
_Lams = Annotated[str | None, option("--lams LIST", "Penalty weights instead, without a unit.")]
_ModelKinds = Annotated[
    str,
    option(
        "--model LIST",
        "Kinds of model, on one frontier: network, and trees of installed libraries: lightgbm, xgboost; with "
        "repair also their scores, repaired.",
    ),
]
_Rule = Annotated[
    str | None,
    option(
        "--rule RULE",
        "limit (with --limits unless said): the best performing that does not miss the loosest; within "
        "(otherwise): lowest dependence at nearly the performance of the model without penalty; lowest: "
        "lowest dependence; knee: the bend of the front; not-rejected: the weakest penalty at which a test "
        "does not reject; equivalent: the weakest shown to be below --tolerance.",
    ),
]
_Within = Annotated[
    float | None, option("--within SHARE", "Of --rule within: what may be lost of it; 0.01 unless said.")
]
_Tolerance = Annotated[
    float | None,
    option(
        "--tolerance X", "Of --rule equivalent: the GDP that is too much; fix it before you look at the rows."
    ),
]
_Validation = Annotated[float, option("--validation SHARE", "Share of rows to choose on.")]
_Holdout = Annotated[
    float, option("--holdout SHARE", "Share of test rows, which take no part, to judge the chosen model on.")
]

# Of the model, the picture, the numbers and the page.
_Paths: TypeAlias = tuple[Path, Path | None, Path | None, Path | None]


@dataclass(frozen=True)
class _Search:
    """How models are trained and chosen."""

    grid: dict[str, Any]  # "budgets", "limits" or "lams"
    models: list[str]
    rule: Rule
    validation: float
    epochs: int
    seed: int

    def __post_init__(self) -> None:
        if self.models == [REPAIR]:
            must, got = "name a model whose scores are repaired", "repair alone"
            raise ArgumentError("--model", must, got, "Write lightgbm,repair, say.")
        if REPAIR in self.models and "lams" in self.grid:
            must = "not name repair with --lams, which it has none of"
            raise ArgumentError("--model", must, "both", "Pass --limits or --budgets.")
        if not 0 < self.validation < 1:
            got = f"{self.validation:g}"
            raise ArgumentError("--validation", "be a share between 0 and 1", got, "Pass 0.2, say.")

    def fit(self, data: TrainingData) -> frhsic.selection.FrontierSearch:
        """Train all models and judge them on validation rows."""
        import frhsic.selection

        judged = math.ceil(self.validation * len(data))
        if judged < _MIN_VALIDATION:
            must = f"set aside at least {_MIN_VALIDATION} rows to choose on"
            raise ArgumentError("--validation", must, judged, "Take a larger share or a longer file.")
        search = frhsic.selection.FrontierSearch(
            [
                data.make_model(kind, self.epochs, random_state=self.seed)
                for kind in self.models
                if kind != REPAIR
            ],
            **self.grid,
            repair=REPAIR in self.models,
            rule=frhsic.selection.lowest_dependence,  # always finds one; the rule of --rule may find none
            validation=self.validation,
            test=self.rule.name == "not-rejected",
            tolerance=self.rule.tolerance,
            random_state=self.seed,
        )
        with echo_warnings():
            search.fit(data.x, data.y, sensitive_features=data.s, sample_weight=data.w)
        return search

    def describe(
        self, search: frhsic.selection.FrontierSearch, rows: TrainingData, held: TrainingData
    ) -> Frontier:
        """Return what was found about each model, with the choice of the rule."""
        table, judged = search.results_, math.ceil(self.validation * len(rows))
        return Frontier(
            points=search.points_,
            columns={str(name): list(table[name]) for name in table},
            attributes=rows.s.names,
            performance="accuracy" if rows.classes else "R^2",
            what="the score" if len(rows.classes) < 3 else "the scores",
            rows={"training": len(rows) - judged, "validation": judged, "test": len(held)},
            chosen=self.rule.function(search.points_),
            measure=_WORDS[next(iter(self.grid["limits"][0]))] if "limits" in self.grid else "GDP",
            loosest=search.points_[1].limit or "",
        )


def frontier(
    context: typer.Context,
    file: options.File,
    target: options.Target,
    sensitive: options.Sensitive,
    output: options.Model,
    plot: _Plot = None,
    report: _Page = None,
    as_json: options.Json = None,
    budgets: _Budgets = None,
    limits: _Limits = None,
    lams: _Lams = None,
    model: _ModelKinds = "network",
    rule: _Rule = None,
    within: _Within = None,
    tolerance: _Tolerance = None,
    validation: _Validation = 0.2,
    task: options.Task = "auto",
    kind: options.Kinds = None,
    weight: options.Weight = None,
    drop: options.Drop = None,
    keep_sensitive: options.KeepSensitive = False,
    holdout: _Holdout = 0.0,
    save_holdout: options.SaveHoldout = None,
    save_missed: options.SaveMissed = False,
    epochs: options.Epochs = 200,
    seed: options.Seed = 0,
    drop_missing: options.DropMissing = False,
    missing_values: options.MissingValues = None,
) -> None:
    """Train models of several budgets or limits at once, show what each costs, and save one of them.

    Columns are taken as by frhsic train. A model without penalty is always trained beside the others. All are
    judged on validation rows (--validation), and a rule chooses one of them there, which flatters it: audit
    what was chosen on test rows, which took no part (--holdout).

    \b
    Examples:
      frhsic frontier people.csv --target income --sensitive age -o model.frhsic --epochs 5
        --plot frontier.png
      frhsic frontier people.csv --target income --sensitive age -o model.frhsic --epochs 5
        --budgets 0.5,0.1 --rule knee --validation 0.3 --holdout 0.3 --save-holdout held_out.csv
      frhsic frontier people.csv --target income --sensitive age -o model.frhsic --epochs 5
        --limits gap=0.05,0.02
      frhsic frontier people.csv --target income --sensitive age -o model.frhsic --epochs 5
        --model lightgbm,network
    """  # noqa: D301
    table = TrainingTable(
        file, target, sensitive, task, kind, weight, drop, keep_sensitive, drop_missing, missing_values
    )
    parsed = Rule.parse(rule, within, tolerance, weight, limited=limits is not None)
    models = parse_models(model, known=(*MODELS, REPAIR))
    search = _Search(parse_grid(budgets, limits, lams), models, parsed, validation, epochs, seed)
    reserve = Holdout(holdout, save_holdout)
    paths = {"-o": output, "--plot": plot, "--report": report, "--json": as_json}
    options.check_outputs({**paths, "--save-holdout": save_holdout}, file)
    if plot is not None:
        _check_plot(plot)
    if report is not None:
        load_pictures()
    data = table.read()
    from frhsic.numerics._threads import one_thread

    with one_thread():
        paths_in_order = output, plot, as_json, report
        chosen, kept = _run(
            search, data, reserve, target, paths_in_order, context.obj, save_missed=save_missed
        )
    for path in filter(None, (plot, report, as_json)):
        echo(f"Wrote {path}.")
    if chosen is None:
        missed = "" if kept else f" The limit is missed. {SAVE_MISSED}"
        echo(f"No model is saved.{missed}", error=True)
        raise typer.Exit(1)
    echo(f"Saved {chosen} to {output}.")
    if not kept:
        raise typer.Exit(1)


def _without_repair(model: Any) -> Any:
    """Return a pipeline that ends in the model whose scores are repaired."""
    from sklearn.pipeline import Pipeline

    if not is_repaired(model):
        return model
    return Pipeline([*model.steps[:-1], (model.steps[-1][0], model[-1].model)])


def _echo_repair(model: Any, output: Path) -> None:
    """Print how the scores of a chosen model are repaired."""
    repair = model[-1].repair
    names = repair.sensitive_names_
    echo(repair.note_)
    keep, sensitive = (
        " ".join(f"--{word} {quote(name)}" for name in names) for word in ("keep", "sensitive")
    )
    trees = getattr(model[-1].model, "backend", None)
    backend = "" if trees is None else f" --backend {trees}"
    echo(f"{output} holds the model without penalty. Repair its scores, with the amount chosen here:")
    echo(f"  frhsic predict {output} FILE -o scores.csv{backend} {keep}")
    amount = f"--amount {repair.amount_:.4g}"
    echo(f"  frhsic repair scores.csv --score score {sensitive} {amount} -o repaired.csv")


def _check_plot(plot: Path) -> None:
    if plot.suffix.lower() not in _PICTURES:
        must = f"end in {', '.join(_PICTURES)}"
        raise ArgumentError("--plot", must, quote(plot.name), "Write frontier.png, say.")
    load_pictures()


def load_pictures() -> None:
    """Load what draws, before training: a library that is not installed is an error then."""
    os.environ.setdefault("MPLBACKEND", "agg")  # files are drawn, no windows
    with show_status("Loading"):
        import frhsic.report  # noqa: F401


def _run(
    options: _Search,
    data: TrainingData,
    reserve: Holdout,
    target: str,
    paths: _Paths,
    words: list[str],
    *,
    save_missed: bool,
) -> tuple[str | None, bool]:
    """Train, choose, write and print; return what is saved, in words, and whether no limit is missed."""
    import frhsic.persistence
    from frhsic.engine.limits import read_limit

    rows, held = reserve.split(data, options.seed)
    search = options.fit(rows)
    found = options.describe(search, rows, held)
    chosen = None if found.chosen is None else search.choose(options.rule.function).best_estimator_
    reason = options.rule.explain(found)
    verdicts = [] if chosen is None else _judge(options, search, chosen, held)
    kept = all(verdict.state != "missed" for verdict in verdicts)
    saved = chosen is not None and (kept or save_missed)
    facts = {
        "target": target,
        "task": "classification" if data.classes else "regression",
        "features": data.x.column_names,
        "epochs": options.epochs,
        "seed": options.seed,
        "rule": dataclasses.asdict(options.rule),
        "reason": reason,
        "limits": [verdict.to_dict() for verdict in verdicts],
    }
    output, plot, json, page = paths
    picture = None if plot is None else found.draw(plot.suffix.lower()[1:], target)
    if saved:
        frhsic.persistence.save(_without_repair(chosen), output)
    if plot is not None and picture is not None:
        write_bytes(picture, plot)
    if json is not None:
        write_json(found.to_dict(facts), json)
    if page is not None:
        search.report(
            page,
            target=target,
            reason=reason,
            rule=options.rule.name,
            found=chosen is not None,
            command=shlex.join(["frhsic", *words]),
            source=Path(words[1]).name,
        )
    n = found.rows
    echo_verdicts(verdicts)
    echo(
        f"Trained {len(found.points)} models, each a {data.what}, on {n['training']:,} rows and {data.width}."
    )
    found.echo()
    echo()
    echo(reason, style="bold")
    if chosen is not None:
        advice = "" if len(held) else " Audit it on rows that took no part: --holdout 0.2 keeps some."
        echo(
            f"It was chosen on these {n['validation']:,} rows, which tend to flatter it; its interval is "
            f"that of one model fixed beforehand.{advice}"
        )
        if len(held):
            echo()
            limits = read_limit(options.grid["limits"][0]) if "limits" in options.grid else ()
            echo_judgement(chosen, "test rows, which took no part", held, seed=options.seed, limits=limits)
        if is_repaired(chosen) and saved:
            echo()
            _echo_repair(chosen, output)
    echo()
    reserve.write(held)
    if not saved:
        return None, kept
    return "the model without penalty" if is_repaired(chosen) else "the chosen model", kept


def _judge(
    options: _Search, search: frhsic.selection.FrontierSearch, chosen: Any, held: TrainingData
) -> list[Verdict]:
    """Return the verdict on the loosest limit asked, of the chosen model."""
    from frhsic.engine.limits import read_limit

    if "limits" not in options.grid:
        return []
    limits = read_limit(options.grid["limits"][0])
    last = split_model(chosen)[1]
    reached = last.repair.reached_ if is_repaired(chosen) else last.reached_
    verdicts = judge_model(chosen, limits, reached, held, options.seed)
    point = search.points_[search.best_index_]
    if not point.missed or any(verdict.above for verdict in verdicts):
        return verdicts
    # By the validation rows: no limit steered the model, or the lower end is above.
    interval = f"95% interval {number(point.lower or 0.0)} to {number(point.upper or 0.0)}"
    measured = f"{next(iter(limits))} {number(point.dependence)}, {interval}, on validation rows"
    steered = [f"{one.steered}; {measured}" if one.steered else measured for one in verdicts]
    return [replace(one, above=True, steered=text) for one, text in zip(verdicts, steered, strict=True)]
