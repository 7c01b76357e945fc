"""Every method on every dataset: nine lambdas and nine budgets, five splits of 200 epochs (resumable)."""

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from torch import Tensor

from benchmarks._pool import spread
from benchmarks._protocol import (
    CACHE,
    SEEDS,
    Array,
    Split,
    output_of,
    published_gdp,
    published_mi,
    score_of,
    split_of,
    training_commit,
)
from benchmarks._record import RESULTS, provenance, read_rows, write_rows
from benchmarks.paper._methods import CONTENDERS
from frhsic import GDP, HSIC, load, save
from frhsic.data import Sensitive
from frhsic.dependence import ScoreGap
from frhsic.estimators import fit_path
from frhsic.kernels import Gaussian

# The published five under the published rows and columns, and Crime with the attribute that the text names.
# With their rows, by which the time that is left is guessed.
DATASETS = {
    "crime-householdsize": 1_994,
    "compas": 6_172,
    "adult": 32_561,
    "meps": 11_356,
    "acs_income": 20_000,
    "crime": 1_994,
}
SLOW = {"Unfair": 0.2, "FREM-exact": 2.0, "dCor": 4.0}
COLUMNS = (
    *("dataset", "method", "form", "strength", "split", "seed", "epochs", "perf_name", "perf", "perf_base"),
    *("gdp_grid", "gdp_population", "nhsic_z", "nhsic_prediction", "r2_s_linear", "r2_s_boosted", "mi_ksg"),
    # On two halves of the held-out rows: what is picked on one is valued on the other.
    *(f"{name}_{half}" for half in "ab" for name in ("perf", "base", "gdp_grid", "gdp_population")),
    # The gap of the score in at most ten rank bins of S, by chance, at its worst cut-off and at one half.
    *("gap", "gap_chance", "gap_worst", "gap_half", "gap_a", "gap_b"),
    *("relative", "n_train", "n_test", "worst_head", "seconds", "commit"),
)
CELL = ("dataset", "method", "form", "split", "epochs")
MODELS = CACHE / "sweep"
PROBED = 5_000  # training rows that the probes of Z learn from


@dataclass(frozen=True)
class Cell:
    """What is trained in one stacked pass: a method in one form on one split of a dataset."""

    dataset: str
    method: str
    form: str
    split: int
    epochs: int

    @property
    def key(self) -> tuple[str, ...]:
        """As the columns of the table spell it."""
        return (self.dataset, self.method, self.form, str(self.split), str(self.epochs))

    @property
    def cost(self) -> float:
        """The time that it takes, compared with other cells."""
        return DATASETS[self.dataset] * SLOW.get(self.method, 1.0)

    def __str__(self) -> str:
        return f"{self.dataset}, {self.method} by {self.form}, split {self.split}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=DATASETS, metavar="DATASET")
    parser.add_argument("--methods", nargs="*", default=list(CONTENDERS), metavar="METHOD", help="of all ten")
    parser.add_argument("--forms", nargs="*", default=["lam", "budget"], choices=["lam", "budget"])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes of one thread each")
    parser.add_argument("--ray", action="store_true", help="spread over a Ray cluster (RAY_ADDRESS) instead")
    parser.add_argument("--table", type=Path, default=RESULTS / "sweep.csv")
    parser.add_argument("--models", type=Path, default=MODELS, help="where trained models are kept")


def cells(arguments: argparse.Namespace) -> list[Cell]:
    """Return the cells asked for: lambdas before budgets, dataset by dataset."""
    unknown = set(arguments.methods) - set(CONTENDERS)
    if unknown:
        raise SystemExit(f"--methods must be of {', '.join(map(repr, CONTENDERS))}. Got {sorted(unknown)}.")
    return [
        Cell(name, method, form, repeat, arguments.epochs)
        for form in arguments.forms
        for name in arguments.datasets
        for repeat in range(arguments.splits)
        for method in arguments.methods
        if form in CONTENDERS[method].forms
    ]


def run(arguments: argparse.Namespace) -> None:
    """Train and judge the cells that the table does not have, and write it after each."""
    table = read(arguments.table)
    done = {key_of(row) for row in table if row.get("gap")}
    missing = [cell for cell in cells(arguments) if cell.key not in done]
    print(f"{len(missing)} cells to train, {len(done)} are there", flush=True)
    header = provenance(seeds=SEEDS, threads_each=1, workers=arguments.workers)
    work = partial(worked, models=arguments.models)
    for rows in spread(missing, work, cost=_cost, workers=arguments.workers, ray=arguments.ray):
        table = replaced(table, rows, arguments.table.with_name("sweep-again.csv"))
        write(arguments.table, table)
        arguments.table.with_suffix(".json").write_text(json.dumps(header, indent=1) + "\n")
    print(arguments.table)


def _cost(cell: Cell) -> float:
    return cell.cost


def replaced(table: list[dict[str, Any]], rows: list[dict[str, Any]], record: Path) -> list[dict[str, Any]]:
    """Return the table with these rows in the place of older ones, and record how far they lie apart.

    The worst head is of the older models, which ``heads`` trained by itself.
    """
    key, strength = key_of(rows[0]), {f"{float(row['strength']):g}": row for row in rows}
    rest = [row for row in table if key_of(row) != key]
    older = [row for row in table if key_of(row) == key]
    if older:
        apart = dict(zip(CELL, key, strict=True))
        for name in ("perf", "gdp_grid", "gdp_population", "nhsic_z", "nhsic_prediction"):
            far = [abs(strength[f"{float(row['strength']):g}"][name] - float(row[name])) for row in older]
            apart[name] = f"{max(far):.3g}"
        write_rows(record, tuple(apart), [*read_rows(record), apart])
    for row in older:
        strength[f"{float(row['strength']):g}"]["worst_head"] = row["worst_head"]
    return rest + rows


def worked(cell: Cell, models: Path = MODELS) -> list[dict[str, Any]]:
    """Train the models of a cell and return their rows."""
    data = split_of(cell.dataset, cell.split)
    path, seconds = trained(cell, data, models)
    contender = CONTENDERS[cell.method]
    probed = np.random.default_rng(cell.split).permutation(len(data.y))[:PROBED]
    commit = training_commit()
    rows = []
    for strength, model in zip(contender.strengths(cell.form), path, strict=True):
        row = {
            **{name: getattr(cell, name) for name in CELL},
            "strength": strength,
            "seed": SEEDS[cell.split],
            **judged(model, data, probed),
            "relative": model.relative_dependence_ if cell.form == "budget" else "",
            "n_train": len(data.y),
            "n_test": len(data.y_test),
            "worst_head": "",
            "seconds": round(seconds / len(path), 2),
            "commit": commit,
        }
        rows.append(row)
    return rows


def trained(
    cell: Cell, data: Split, models: Path = MODELS, only: tuple[float, ...] | None = None
) -> tuple[list[Any], float]:
    """Return the models of a cell, one for each strength, and the seconds of their training.

    They are kept beside the results: a killed run goes on from its last checkpoint, and what looks at trained
    models later need not train them again. ``only``: some of the strengths, the rest not trained for them;
    models in one stacked pass do not touch each other, so they are the same but for rounding.
    """
    contender = CONTENDERS[cell.method]
    strengths = contender.strengths(cell.form)
    place = models / "-".join(cell.key).replace(" ", "_")
    if only is not None:
        if not (place / "seconds").exists():
            place = place.with_name("-".join([place.name, "only", *(f"{one:g}" for one in only)]))
        strengths = only
    files = [place / f"{strength:g}.safetensors" for strength in strengths]
    note = place / "seconds"
    if note.exists():
        return [load(file) for file in files], float(note.read_text())
    place.mkdir(parents=True, exist_ok=True)
    estimator = contender.estimator(
        cell.form,
        regression=data.regression,
        epochs=cell.epochs,
        seed=SEEDS[cell.split],
        checkpoint=str(place / "checkpoint"),
    )
    forms = {"lam": {"lams": strengths}, "budget": {"budgets": strengths}}
    start = time.perf_counter()
    path = stacked(estimator, data, **forms[cell.form])
    seconds = time.perf_counter() - start
    if cell.form == "budget":
        path = path[1:]  # the first is the unconstrained one
    for model, file in zip(path, files, strict=True):
        save(model.set_params(penalty=None), file)  # a measure that is not of the package cannot be saved
    draft = note.with_suffix(".part")
    draft.write_text(f"{seconds:.1f}")
    draft.replace(note)
    return path, seconds


def stacked(estimator: Any, data: Split, **strengths: Any) -> list[Any]:
    """Train an estimator at each of its strengths, in one pass."""
    # Kernels of a fixed bandwidth reach numbers below 1e-38, with which a step takes three times as long.
    torch.set_flush_denormal(True)
    try:
        return list(fit_path(estimator, data.x, data.y, sensitive_features=data.s, **strengths))
    finally:
        torch.set_flush_denormal(False)  # scipy's trees need these numbers


def predicted(model: Any, data: Split) -> tuple[Array, Array]:
    """Return logits and probabilities of the held-out rows, or predictions twice."""
    output = output_of(model, data.x_test, regression=data.regression)
    return output, score_of(output, regression=data.regression)


def judged(model: Any, data: Split, probed: Any) -> dict[str, Any]:
    """Return performance and dependence on the held-out rows; probes of Z learn from training rows."""
    z, s = model.transform(data.x_test), data.s_test
    output, score = predicted(model, data)
    z_probed, s_probed = model.transform(data.x[probed]), data.s[probed]
    linear = LinearRegression().fit(z_probed, s_probed)
    boosted = HistGradientBoostingRegressor(random_state=0).fit(z_probed, s_probed)
    found = {
        "perf_name": "mse" if data.regression else "accuracy",
        **measured(output, score, data, slice(None)),
        "nhsic_z": _nhsic(z, s, whiten=True),
        "nhsic_prediction": _nhsic(score, s),
        "r2_s_linear": linear.score(z, s),
        "r2_s_boosted": boosted.score(z, s),
        "mi_ksg": published_mi(z, s),
    }
    found["perf_base"] = found.pop("base")
    # The order of the held-out rows is random: every other one is a random half.
    for half, rows in (("a", slice(0, None, 2)), ("b", slice(1, None, 2))):
        found |= {f"{name}_{half}": value for name, value in measured(output, score, data, rows).items()}
        found[f"gap_{half}"] = gaps(score[rows], s[rows])["gap"]
    return found | gaps(score, s, float(np.median(data.y)) if data.regression else 0.5, chance=True)


def measured(output: Array, score: Array, data: Split, rows: slice) -> dict[str, float]:
    """Return performance, that of a constant prediction, and both readings of GDP on some held-out rows."""
    y, s = data.y_test[rows], data.s_test[rows]
    if data.regression:
        perf, base = np.mean((output[rows] - y) ** 2), np.mean((data.y.mean() - y) ** 2)
    else:
        perf, base = np.mean((output[rows] > 0) == y), np.mean(y == (data.y.mean() > 0.5))
    return {
        "perf": float(perf),
        "base": float(base),
        "gdp_grid": published_gdp(output[rows], s),
        "gdp_population": GDP(0.1)(torch.from_numpy(score[rows]), torch.from_numpy(s)).item(),
    }


def gaps(score: Array, s: Array, half: float = 0.5, *, chance: bool = False) -> dict[str, float]:
    """Return the gap of a score in at most ten rank bins of S, at its worst cut-off and at one.

    ``half`` is that one: 0.5 of a probability, the median of the training target of a regression. ``chance``:
    also the mean over 99 orders of S.
    """
    bins = Sensitive(rank_bins(s)[:, None], ("s",), ("categorical",))
    z, measure = torch.from_numpy(score)[:, None], ScoreGap()
    found = {
        "gap": measure(z, bins).item(),
        "gap_worst": measure.worst(z, bins)[1].item(),
        "gap_half": measure.at(z, bins, torch.tensor([half], dtype=z.dtype)).item(),
    }
    if chance:
        generator = torch.Generator().manual_seed(0)
        orders = torch.stack([torch.randperm(len(z), generator=generator) for _ in range(99)])
        found["gap_chance"] = measure.permuted(z, bins, orders).mean().item()
    return found


def rank_bins(s: Array, most: int = 10) -> Tensor:
    """Return the rank bin of each row: equal values stay together, so that there may be fewer."""
    edges = np.unique(np.quantile(s, np.arange(1, most) / most))
    return torch.from_numpy(np.unique(np.searchsorted(edges, s), return_inverse=True)[1].astype(np.float64))


def _nhsic(z: Array, s: Array, *, whiten: bool = False) -> float:
    """Return the debiased normalised HSIC; 0 for a constant, of which nothing can be learned."""
    if not np.ptp(z, axis=0).any():
        return 0.0
    measure = HSIC(Gaussian("scale-free", whiten=whiten), estimator="unbiased", normalized=True)
    return measure(torch.from_numpy(z), torch.from_numpy(s)).item()


# ---- the table -------------------------------------------------------------------------------------------


def read(path: Path = RESULTS / "sweep.csv") -> list[dict[str, str]]:
    """Return the rows of the table; none where it is not yet."""
    return read_rows(path)


def write(path: Path, rows: Sequence[dict[str, str]]) -> None:
    """Write the table in the order of datasets and methods, whatever the order of training."""
    places, names = list(DATASETS), list(CONTENDERS)

    def place(row: dict[str, str]) -> tuple[Any, ...]:
        which = places.index(row["dataset"]), names.index(row["method"]), row["form"] == "budget"
        return *which, int(row["epochs"]), int(row["split"]), float(row["strength"])

    write_rows(path, COLUMNS, sorted((dict.fromkeys(COLUMNS, "") | row for row in rows), key=place))


def key_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the cell that a row of the table belongs to."""
    return tuple(str(row[name]) for name in CELL)
