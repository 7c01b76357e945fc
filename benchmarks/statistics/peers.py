"""Where the peers fail: four tables with an integer age through fairlearn, AIF360, fairret and this library.

Each number is asked for as its documentation says, once with age as it is and once with age in five groups of
equal size. A number is of use when a table with dependence gets a larger one than a table without: the share
of pairs of draws in which that is so is 1 for a perfect instrument and 0.5 for a coin.
"""

import argparse
import importlib
import json
import logging
import math
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from scipy import stats

from benchmarks._figures import house_style
from benchmarks._record import RESULTS, provenance, write
from benchmarks._simulate import BLUE, ORANGE, SKY, Array, figure_path, rng
from frhsic import GDP, HSIC
from frhsic.inference import confidence_interval, independence_test

ROWS, DRAWS, PERMUTATIONS = 5_000, 20, 199
TABLES = ("independent", "linear", "U-shaped", "variance only")
PEERS = ("fairlearn", "aif360", "fairret")
# A table of working people: half below 40, one in fifty above 74, single rows at the end.
AGES = np.arange(18, 91)
LAW = stats.beta.pdf((AGES - 17.5) / 73.0, 1.6, 3.2)
LAW = LAW / LAW.sum()

Number = Callable[["Table"], float]


class Table:
    """One draw: integer age, a score (a probability), the decision at one half, labels that nobody reads."""

    def __init__(self, name: str, draw: int, rows: int) -> None:
        pandas = importlib.import_module("pandas")
        g = rng("peers", name, draw)
        self.age = g.choice(AGES, rows, p=LAW)
        mean, spread = shapes(name)
        noise = g.standard_normal(rows)
        place = self.age - AGES[0]
        self.score: Array = 1.0 / (1.0 + np.exp(-mean[place] - spread[place] * noise))
        self.decision = (self.score > 0.5).astype(int)
        self.y = g.integers(0, 2, rows)
        self.group = pandas.qcut(self.age, 5, labels=False)
        self.seed = int(g.integers(2**31))


def shapes(name: str) -> tuple[Array, Array]:
    """Return the mean and the spread of the logit at each age; the U has no covariance with age at all."""
    u = (AGES - LAW @ AGES) / math.sqrt(LAW @ (AGES - LAW @ AGES) ** 2)
    square = u**2 - 1.0 - (LAW @ u**3) * u
    zero, one = np.zeros_like(u), np.ones_like(u)
    return {
        "independent": (zero, one),
        "linear": (0.15 * u, one),
        "U-shaped": (0.15 * square / math.sqrt(LAW @ square**2), one),
        "variance only": (zero, np.exp(0.25 * u)),
    }[name]


# ---- what is called --------------------------------------------------------------------------------------


def fairlearn_difference(groups: str) -> Number:
    """Return ``demographic_parity_difference`` of the decisions over ``age`` or ``group``."""
    metrics = importlib.import_module("fairlearn.metrics")
    return lambda t: metrics.demographic_parity_difference(
        t.y, t.decision, sensitive_features=getattr(t, groups)
    )


def fairlearn_frame(groups: str) -> Number:
    """Return the difference of a ``MetricFrame`` of mean predictions over ``age`` or ``group``."""
    metrics = importlib.import_module("fairlearn.metrics")
    return lambda t: metrics.MetricFrame(
        metrics=metrics.mean_prediction, y_true=t.y, y_pred=t.score, sensitive_features=getattr(t, groups)
    ).difference()


def correlation_remover() -> Number:
    """Return how much fairlearn's ``CorrelationRemover`` moves the score, on average."""
    remover = importlib.import_module("fairlearn.preprocessing").CorrelationRemover
    pandas = importlib.import_module("pandas")

    def number(t: Table) -> float:
        table = pandas.DataFrame({"age": t.age.astype(float), "score": t.score})
        moved = remover(sensitive_feature_ids=["age"]).fit_transform(table)
        return float(np.abs(np.asarray(moved)[:, 0] - t.score).mean())

    return number


def aif360_function(name: str, groups: str) -> Number:
    """Return a function of ``aif360.sklearn.metrics`` on the decisions over ``age`` or ``group``."""
    function = getattr(importlib.import_module("aif360.sklearn.metrics"), name)
    pandas = importlib.import_module("pandas")
    return lambda t: function(
        pandas.Series(t.y, index=pandas.Index(getattr(t, groups), name="age")), t.decision, prot_attr="age"
    )


def aif360_older_than_25() -> Number:
    """Return the size of ``mean_difference`` between people above 25 and others, as AIF360's tutorials do."""
    datasets = importlib.import_module("aif360.datasets")
    metrics = importlib.import_module("aif360.metrics")
    pandas = importlib.import_module("pandas")

    def number(t: Table) -> float:
        table = pandas.DataFrame({"age": (t.age > 25).astype(float), "decision": t.decision.astype(float)})
        data = datasets.BinaryLabelDataset(
            df=table, label_names=["decision"], protected_attribute_names=["age"]
        )
        metric = metrics.BinaryLabelDatasetMetric(
            data, unprivileged_groups=[{"age": 0.0}], privileged_groups=[{"age": 1.0}]
        )
        return abs(metric.mean_difference())

    return number


def fairret_loss(groups: str) -> Number:
    """Return fairret's ``NormLoss(PositiveRate())`` with one column of ages, or one for each group."""
    loss = importlib.import_module("fairret.loss").NormLoss(
        importlib.import_module("fairret.statistic").PositiveRate()
    )

    def number(t: Table) -> float:
        sens = torch.from_numpy(t.age).double()[:, None]
        if groups == "group":
            sens = torch.nn.functional.one_hot(torch.from_numpy(t.group).long()).double()
        return float(loss(torch.from_numpy(t.score)[:, None], sens, pred_as_logit=False))

    return number


def instruments() -> dict[str, tuple[str, str, Number]]:
    """Return title: (of decisions or probabilities, how age goes in, the number)."""
    return {
        "fairlearn demographic_parity_difference": ("decisions", "raw", fairlearn_difference("age")),
        "AIF360 statistical_parity_difference": (
            "decisions", "raw", aif360_function("statistical_parity_difference", "age")
        ),
        "AIF360 smoothed_edf": ("decisions", "raw", aif360_function("smoothed_edf", "age")),
        "fairlearn demographic_parity_difference, 5 groups": (
            "decisions", "groups", fairlearn_difference("group")
        ),
        "AIF360 smoothed_edf, 5 groups": ("decisions", "groups", aif360_function("smoothed_edf", "group")),
        "AIF360 mean_difference, above 25 or not": ("decisions", "groups", aif360_older_than_25()),
        "fairlearn MetricFrame(mean_prediction)": ("probabilities", "raw", fairlearn_frame("age")),
        "fairlearn CorrelationRemover, mean change": ("probabilities", "raw", correlation_remover()),
        "fairret NormLoss(PositiveRate)": ("probabilities", "raw", fairret_loss("age")),
        "fairlearn MetricFrame(mean_prediction), 5 groups": (
            "probabilities", "groups", fairlearn_frame("group")
        ),
        "fairret NormLoss(PositiveRate), 5 groups": ("probabilities", "groups", fairret_loss("group")),
    }  # fmt: skip


MEASURES = {"GDP": GDP(), "normalised HSIC": HSIC(estimator="unbiased", normalized=True)}


def answer(number: Number, table: Table) -> tuple[float, list[str]]:
    """Return a peer's number, nan when it has none, and what it said meanwhile."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            value = float(number(table))
        except Exception as error:
            return math.nan, [f"{type(error).__name__}: {error}"]
    return value, sorted({f"{w.category.__name__}: {w.message}" for w in said})


def traps(t: Table) -> dict[str, str]:
    """Return what is easily asked and answered without a useful number, word for word."""
    metrics = importlib.import_module("fairlearn.metrics")
    datasets, aif = (importlib.import_module(f"aif360.{name}") for name in ("datasets", "metrics"))
    pandas = importlib.import_module("pandas")
    loss = importlib.import_module("fairret.loss").NormLoss(
        importlib.import_module("fairret.statistic").PositiveRate()
    )
    score, age = torch.from_numpy(t.score)[:, None], torch.from_numpy(t.age).double()[:, None]

    def mean_difference(label: Any, **groups: Any) -> float:
        frame = pandas.DataFrame({"age": t.age.astype(float), "label": label.astype(float)})
        data = datasets.BinaryLabelDataset(df=frame, label_names=["label"], protected_attribute_names=["age"])
        return float(aif.BinaryLabelDatasetMetric(data, **groups).mean_difference())

    def loss_on(sens: torch.Tensor) -> float:
        return float(loss(score, sens, pred_as_logit=False))

    def lower_end() -> float:
        frame = metrics.MetricFrame(
            metrics=metrics.mean_prediction,
            y_true=t.y,
            y_pred=t.score,
            sensitive_features=t.group,
            n_boot=100,
            ci_quantiles=[0.025, 0.975],
            random_state=0,
        )
        return float(frame.difference_ci()[0])

    groups = {"privileged_groups": [{"age": 1.0}], "unprivileged_groups": [{"age": 0.0}]}
    asked: dict[str, Callable[[], float]] = {
        "fairlearn demographic_parity_difference of probabilities": lambda: float(
            metrics.demographic_parity_difference(t.y, t.score, sensitive_features=t.age)
        ),
        "fairlearn MetricFrame, 5 groups, lower end of the bootstrap's 95 % interval": lower_end,
        "AIF360 mean_difference, raw age, groups 1 and 0": lambda: mean_difference(t.decision, **groups),
        "AIF360 mean_difference, raw age, no groups": lambda: mean_difference(t.decision),
        "AIF360 mean_difference of probabilities": lambda: mean_difference(t.score, **groups),
        "fairret NormLoss, age in years": lambda: loss_on(age),
        "fairret NormLoss, age - 17": lambda: loss_on(age - 17.0),
        "fairret NormLoss, standardised age": lambda: loss_on((age - age.mean()) / age.std()),
    }
    found = {}
    for title, number in asked.items():
        value, said = answer(lambda _, number=number: number(), t)  # type: ignore[misc]
        refused = any(not words.partition(":")[0].endswith("Warning") for words in said)
        found[title] = "; ".join(said if refused else [f"{value:.4g}", *said])
    return found


# ---- the run ---------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--draws", type=int, default=DRAWS, help="tables of each kind")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--quick", action="store_true", help="three draws, results not kept")
    parser.add_argument("--draw", action="store_true", help="only draw the figure from the results")


def run(arguments: argparse.Namespace) -> None:
    """Ask everyone about every draw, print the table, write results and figure."""
    if arguments.draw:
        draw(json.loads((RESULTS / "peers.json").read_text())["rows"], quick=False)
        return
    logging.disable(logging.WARNING)  # AIF360 names what is not installed at every import
    asked = instruments()
    draws = 3 if arguments.quick else arguments.draws
    start = time.perf_counter()
    values: dict[str, dict[str, list[float]]] = {}
    pvalues: dict[str, dict[str, list[float]]] = {}
    said: dict[str, set[str]] = {title: set() for title in asked}
    for name in TABLES:
        for number in range(draws):
            table = Table(name, number, arguments.rows)
            for title, (_, _, function) in asked.items():
                value, words = answer(function, table)
                values.setdefault(title, {}).setdefault(name, []).append(value)
                said[title].update(words)
            for measure, dependence in MEASURES.items():
                for of, z in (("decisions", table.decision), ("probabilities", table.score)):
                    result = independence_test(
                        z,
                        table.age,
                        dependence=dependence,
                        n_permutations=PERMUTATIONS,
                        random_state=table.seed,
                    )
                    title = f"frhsic {measure} of {of}"
                    values.setdefault(title, {}).setdefault(name, []).append(result.statistic)
                    pvalues.setdefault(title, {}).setdefault(name, []).append(result.pvalue)
        print(f"{name}: {draws} draws, {time.perf_counter() - start:.0f} s", flush=True)
    rows = [
        summary(title, *(asked[title][:2] if title in asked else (title.rpartition(" ")[2], "ours")), found)
        | {"said": sorted(said.get(title, set()))}
        | {"p <= 0.05": {name: share(ps) for name, ps in pvalues.get(title, {}).items()}}
        for title, found in values.items()
    ]
    first = {name: Table(name, 0, arguments.rows) for name in TABLES}
    spoken = {
        name: [
            str(confidence_interval(t.score, {"age": t.age}, dependence=GDP(), random_state=t.seed)),
            str(confidence_interval(t.score, {"age": t.age}, random_state=t.seed)),
        ]
        for name, t in first.items()
    }
    report = provenance(
        peers={name: version(name) for name in PEERS},
        rows_of_a_table=arguments.rows,
        draws=draws,
        permutations=PERMUTATIONS,
        seconds=round(time.perf_counter() - start, 1),
        rows=rows,
        first_draw=spoken,
        traps=traps(first["independent"]),
    )
    show(rows)
    for title, words in report["traps"].items():
        print(f"{title}: {words}")
    if not arguments.quick:
        print(write("peers.json", report))
    draw(rows, quick=arguments.quick)


def share(pvalues: list[float]) -> float:
    """Return the share of p-values at or below 0.05."""
    return float(np.mean(np.array(pvalues) <= 0.05 + 1e-9))


def summary(title: str, of: str, age: str, found: dict[str, list[float]]) -> dict[str, Any]:
    """Return the values by table and how often dependence got the larger one."""
    none = np.array(found["independent"])
    apart = {}
    for name in TABLES[1:]:
        some = np.array(found[name])
        larger = (some[:, None] > none).mean() + 0.5 * (some[:, None] == none).mean()
        apart[name] = None if np.isnan(some).any() or np.isnan(none).any() else float(larger)
    described = {
        name: None
        if np.isnan(numbers).any()
        else {
            # JSON has no infinity.
            key: float(value) if math.isfinite(value) else str(value)
            for key, value in zip(
                ("median", "least", "most"),
                (np.median(numbers), np.min(numbers), np.max(numbers)),
                strict=True,
            )
        }
        for name, numbers in found.items()
    }
    return {"title": title, "of": of, "age": age, "values": described, "told apart": apart}


def _digits(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2g}" if abs(value) >= 0.001 else f"{value:.4f}"


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table as markdown."""
    print("| asked | of | independent | linear | U-shaped | variance only |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        cells = []
        for name in TABLES:
            value, apart = row["values"][name], row["told apart"].get(name)
            text = "nan" if value is None else _digits(value["median"])
            if value is not None and name == "independent":
                text += f" ({_digits(value['least'])} to {_digits(value['most'])})"
            if apart is not None:
                text += f" [{apart:.2f}]"
            if row["p <= 0.05"]:
                text += f", p <= .05 in {row['p <= 0.05'][name]:.0%}"
            cells.append(text)
        print(f"| {row['title']} | {row['of']} | " + " | ".join(cells) + " |")


# ---- the figure ------------------------------------------------------------------------------------------

COLOURS = {"raw": ORANGE, "groups": SKY, "ours": BLUE}
WORDS = {"raw": "peer, age as it is", "groups": "peer, age in groups", "ours": "frhsic, age as it is"}
MARKERS = {"raw": "s", "groups": "D", "ours": "o"}


@house_style(11.0)
def draw(rows: list[dict[str, Any]], *, quick: bool) -> None:
    """Draw the tables, and below each what can be told apart from independence."""
    plt = importlib.import_module("matplotlib.pyplot")
    figure = plt.figure(figsize=(13.5, 9.6))
    grid = figure.add_gridspec(2, 4, height_ratios=(1.0, 2.6))
    order = {"decisions": 0, "probabilities": 1}, {"raw": 0, "groups": 1, "ours": 2}
    rows = sorted(rows, key=lambda row: (order[0][row["of"]], order[1][row["age"]]))
    height = [len(rows) - k - (0.8 if row["of"] == "probabilities" else 0.0) for k, row in enumerate(rows)]
    for column, name in enumerate(TABLES):
        table = Table(name, 0, ROWS)
        top = figure.add_subplot(grid[0, column])
        shown = slice(0, 1_500)
        top.scatter(table.age[shown], table.score[shown], s=3, color="0.6", linewidths=0)
        mean, spread = shapes(name)
        quantiles = stats.norm.ppf([0.1, 0.9])
        for level in quantiles:
            top.plot(
                AGES, 1 / (1 + np.exp(-mean - level * spread)), color="black", linewidth=1, linestyle="--"
            )
        top.plot(AGES, 1 / (1 + np.exp(-mean)), color="black", linewidth=2)
        top.set(title=name, xlabel="age", ylim=(0, 1))
        if column == 0:
            top.set_ylabel("score; its median,\n10 % and 90 % quantiles")
        axis = figure.add_subplot(grid[1, column])
        for y, row in zip(height, rows, strict=True):
            _point(axis, y, row, name)
        axis.set(ylim=(min(height) - 0.7, max(height) + 0.7), yticks=height)
        axis.set_yticklabels([_label(row) for row in rows] if column == 0 else [], fontsize=8.5)
        if column > 0:  # else it would strike out the numbers
            axis.grid(axis="y", color="0.9", linewidth=0.8)
        axis.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        middle = (height[_first(rows)] + height[_first(rows) - 1]) / 2
        axis.axhline(middle, color="0.4", linewidth=0.8)
        if column == 0:
            axis.set(
                xlim=(0, 1), xticks=[], xlabel="what it reports there:\nmedian (least to most) of the draws"
            )
            axis.spines["bottom"].set_visible(False)
            for text, y in (("of decisions", max(height) + 0.45), ("of probabilities", middle - 0.42)):
                axis.text(
                    1.0, y, text, transform=axis.get_yaxis_transform(), ha="right", fontsize=8, style="italic"
                )
        else:
            axis.axvline(0.5, color="0.4", linewidth=1, linestyle=":")
            axis.set(xlim=(0.2, 1.05), xlabel="told from independent\n(0.5: as by a coin, 1: always)")
    handles = [
        plt.Line2D([], [], marker=MARKERS[age], color=COLOURS[age], linestyle="", label=WORDS[age])
        for age in COLOURS
    ]
    handles.append(
        plt.Line2D([], [], marker="o", color="white", markeredgecolor="0.3", linestyle="",
                   label="hollow: these decisions do not depend on age")
    )  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    path = figure_path("peers.png", quick=quick)
    figure.savefig(path, dpi=110)
    print(path)


def _first(rows: list[dict[str, Any]]) -> int:
    return next(k for k, row in enumerate(rows) if row["of"] == "probabilities")


def _label(row: dict[str, Any]) -> str:
    return str(row["title"]).removesuffix(f" of {row['of']}")


def _point(axis: Any, y: float, row: dict[str, Any], name: str) -> None:
    colour, marker = COLOURS[row["age"]], MARKERS[row["age"]]
    value = row["values"][name]
    if name == "independent":
        words = "nan" if value is None else _digits(value["median"])
        if value is not None:
            words += f" ({_digits(value['least'])} to {_digits(value['most'])})"
        axis.plot(0.05, y, marker, color=colour, markeredgecolor="black", markersize=8, clip_on=False)
        axis.text(0.14, y, words, fontsize=9, va="center")
        return
    if value is None:
        axis.text(0.5, y, "nan", fontsize=8.5, ha="center", va="center",
                  bbox={"facecolor": "white", "edgecolor": colour, "boxstyle": "round,pad=0.2"})  # fmt: skip
        return
    # At one half the decisions of the last table do not depend on age: there, a coin is the right answer.
    hollow = name == "variance only" and row["of"] == "decisions"
    axis.plot(
        row["told apart"][name],
        y,
        marker,
        markersize=8,
        color="white" if hollow else colour,
        markeredgecolor=colour if hollow else "black",
    )
