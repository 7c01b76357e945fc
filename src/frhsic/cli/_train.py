"""The command ``frhsic train``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from frhsic._checks import ArgumentError
from frhsic._text import quote, share
from frhsic.cli import _options as options
from frhsic.cli._options import option
from frhsic.cli._output import echo, echo_warnings, show_status
from frhsic.cli._rules import parse_limit
from frhsic.cli._training import (
    Holdout,
    TrainingData,
    TrainingTable,
    echo_judgement,
    judge_model,
    parse_models,
)
from frhsic.cli._verdicts import SAVE_MISSED, echo_verdicts

_Budget = Annotated[
    float | None,
    option(
        "--budget SHARE",
        "Share, from above 0 to 1, of the dependence of a model without penalty that may be left in "
        "training; 0.1 unless --lam is given.",
    ),
]
_Limit = Annotated[
    list[str] | None,
    option(
        "--limit MEASURE=X",
        "Limit instead, in the unit of the score: gap=0.02, gdp=0.02; or in shares: rank_gap=0.05, "
        "gap_worst=0.05, gap_at:0.5=0.03, normalized_hsic=0.01. May be repeated.",
    ),
]
_Lam = Annotated[float | None, option("--lam X", "Penalty weight instead, without a unit; 0 trains without.")]
_ModelKind = Annotated[
    str, option("--model KIND", "network, or trees of an installed library: lightgbm or xgboost.")
]
_Holdout = Annotated[
    float, option("--holdout SHARE", "Share of test rows: nothing sees them but the judgement.")
]


def train(
    file: options.File,
    target: options.Target,
    sensitive: options.Sensitive,
    output: options.Model,
    budget: _Budget = None,
    limit: _Limit = None,
    lam: _Lam = None,
    model: _ModelKind = "network",
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
    """Train a model whose score depends less on the sensitive columns.

    Features are all columns other than target, weight and sensitive ones; text becomes categories, empty
    cells are filled. With --drop-missing, rows are left out where target, weight or a sensitive column is
    empty. To choose among several budgets, see: frhsic frontier --help

    A limit is missed where its value on the steering rows is more than 5 % above it, or where the lower end
    of the interval on test rows (--holdout) is above: the model is then not saved, and the exit code is 1.

    \b
    Examples:
      frhsic train people.csv --target income --sensitive age -o model.frhsic --epochs 5
      frhsic train people.csv --target income --sensitive age --budget 0.2 -o model.frhsic --epochs 5
        --holdout 0.3 --save-holdout held_out.csv
      frhsic train people.csv --target income --sensitive age --limit gap=0.02 -o model.frhsic --epochs 5
      frhsic train people.csv --target income --sensitive age --lam 3 -o model.frhsic --epochs 5
      frhsic train people.csv --target income --sensitive age --model lightgbm -o model.frhsic
    """  # noqa: D301
    table = TrainingTable(
        file, target, sensitive, task, kind, weight, drop, keep_sensitive, drop_missing, missing_values
    )
    options.check_only_one({"--budget": budget, "--limit": limit, "--lam": lam})
    limits = parse_limit(limit) if limit else None
    if budget is not None and not 0 < budget <= 1:
        must = "lie above 0 and be at most 1: a share of the dependence of a model without penalty"
        fix = "Pass 0.1, say, or --lam 0 to train without a penalty."
        raise ArgumentError("--budget", must, f"{budget:g}", fix)
    (kind_of_model,) = _one(parse_models(model), model)
    reserve = Holdout(holdout, save_holdout)
    options.check_outputs({"-o": output, "--save-holdout": save_holdout}, file)
    data = table.read()
    from frhsic.numerics._threads import one_thread

    with one_thread():
        settings = {"budget": budget, "limit": limits, "lam": lam, "epochs": epochs, "kind": kind_of_model}
        kept = _run(data, reserve, output, settings, seed, save_missed=save_missed)
    if not kept:
        raise typer.Exit(1)


def _one(names: list[str], text: str) -> list[str]:
    if len(names) > 1:
        fix = "For several see: frhsic frontier --help"
        raise ArgumentError("--model", "name one kind", quote(text), fix)
    return names


def _run(
    data: TrainingData,
    reserve: Holdout,
    output: Path,
    settings: dict[str, Any],
    seed: int,
    *,
    save_missed: bool,
) -> bool:
    """Train a model, print how it does, save it, and return whether it misses no limit."""
    with show_status("Loading"):
        import frhsic.persistence
        from frhsic.engine.budget import BUDGET
        from frhsic.engine.limits import read_limit
    rows, held = reserve.split(data, seed)
    model = data.make_model(**settings, random_state=seed)
    step = model.steps[-1][0]
    with echo_warnings():
        arguments = {f"{step}__sensitive_features": rows.s, f"{step}__sample_weight": rows.w}
        model.fit(rows.x, rows.y, **arguments)
    limits = read_limit(settings["limit"]) if settings["limit"] else {}
    kept = echo_verdicts(judge_model(model, limits, model[-1].reached_, held, seed))
    saved = kept or save_missed
    if saved:
        frhsic.persistence.save(model, output)
    how = "" if settings["kind"] == "network" else f" with {settings['kind']}"
    echo(f"Trained a {data.what}{how} on {len(rows):,} rows and {data.width}.")
    echo()
    echo_judgement(model, "the rows used for training", rows)
    relative, budget = model[-1].relative_dependence_, settings["budget"] or BUDGET
    if relative is not None and not math.isnan(relative):
        left = f"{share(relative)} of that of a model trained beside it without penalty"
        what = "Normalised HSIC" if settings["kind"] == "network" else "HSIC"
        echo(
            f"  {what} of the score is {left} (budget: {share(budget)}). GDP falls "
            "more slowly, because HSIC behaves like a square."
        )
    for one in model[-1].reached_:
        echo(f"  {one}")
    if len(held):
        echo()
        echo_judgement(model, "test rows, which took no part", held, seed=seed, limits=limits)
    reserve.write(held)
    if not len(held):
        echo("Numbers on rows used for training flatter a model: judge it on others (--holdout, or audit).")
    if saved:
        echo(f"Saved the model to {output}.")
    else:
        echo(f"No model is saved: a limit is missed. {SAVE_MISSED}", error=True)
    return kept
