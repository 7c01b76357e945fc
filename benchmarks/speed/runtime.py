"""Time of an epoch on the paper's runtime task: every method, over training without a penalty, by n."""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import frhsic.baselines
from benchmarks._figures import house_style
from benchmarks._protocol import published
from benchmarks._record import RESULTS, provenance, write
from benchmarks._simulate import BLUE, GREEN, ORANGE, figure_path
from frhsic import HSIC, FRHSICClassifier, Penalty, Sensitive
from frhsic.baselines import Method
from frhsic.dependence import Dependence
from frhsic.kernels import Gaussian

SEED = 0
SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000)


# What the published runtime script times, written from its formulas.


class WrittenHSIC(Dependence):
    """tr(K H L H) / n^2 with both matrices formed and centred by products with H."""

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:  # noqa: ARG002
        n = len(z)
        K, L = gaussian(z, 1.0), gaussian(s.values, 0.3)
        H = torch.eye(n).to(z) - 1.0 / n
        return ((H @ K @ H) * (H @ L @ H)).sum() / n**2


class LoopedEIPM(Dependence):
    """FREM with a python loop over all rows of the batch as anchors."""

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:  # noqa: ARG002
        n = len(z)
        K, near = gaussian(z, 1.0), gaussian(s.values, 0.5)
        near = near - torch.diag(near.diagonal())
        near = near / near.sum(dim=1, keepdim=True)
        even = z.new_full((n,), 1.0 / n)
        total = z.new_zeros(())
        for v in near:
            squared = v @ K @ v - 2.0 * (v @ K @ even) + even @ K @ even
            total = total + squared.clamp_min(1e-10).sqrt()
        return total / n


class LoopedGDP(Dependence):
    """Reg-GDP with a python loop over its thirty points."""

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:  # noqa: ARG002
        f, at = z[:, 0], s.values[:, 0]
        total = z.new_zeros(())
        for point in torch.linspace(at.min().item(), at.max().item(), 30).to(z):
            near = torch.exp(-(at - point).square() / (2.0 * 0.2**2))
            total = total + (near @ f / near.sum() - f.mean()).abs()
        return total / 30


def gaussian(x: Tensor, sigma: float) -> Tensor:
    """Return the Gram matrix as the scripts form it."""
    return torch.exp(-torch.cdist(x, x).pow(2) / (2.0 * sigma**2))


@dataclass(frozen=True)
class Timed:
    """What is timed, and the epochs after the warm-up in which sigma_Z is found."""

    make: Callable[[int], FRHSICClassifier]
    epochs: int = 5
    published: str | None = None  # the method of the published timings that it is


def of(name: str, dependence: Dependence | None = None) -> Callable[[int], FRHSICClassifier]:
    """Return the maker of a published method, with its formula as written where one is given."""
    method: Method = getattr(frhsic.baselines, name)

    def make(epochs: int) -> FRHSICClassifier:
        model = method.classifier(epochs=epochs, random_state=SEED)
        if dependence is None or method.penalty is None:
            return model
        return model.set_params(penalty=Penalty(dependence, on=method.penalty.on))

    return make


def ours(penalty: Penalty | None) -> Callable[[int], FRHSICClassifier]:
    """Return the maker of what is not published."""
    return lambda epochs: FRHSICClassifier(lam=1.0, penalty=penalty, epochs=epochs, random_state=SEED)


METHODS: dict[str, Timed] = {
    "Unfair": Timed(of("UNFAIR")),
    "FRHSIC": Timed(of("FRHSIC")),
    "FRHSIC, as written": Timed(of("FRHSIC", WrittenHSIC()), published="FRHSIC"),
    "FREM": Timed(of("FREM")),
    "FREM, loop": Timed(of("FREM", LoopedEIPM()), epochs=1, published="FREM"),
    "Reg-GDP": Timed(of("REG_GDP")),
    "Reg-GDP, loop": Timed(of("REG_GDP", LoopedGDP()), published="Reg-GDP"),
    "Reg-GDP (probabilities)": Timed(of("REG_GDP_PROBABILITIES")),
    "ADV": Timed(of("ADV")),
    "MMD (binned)": Timed(of("MMD")),
    "LAFTR (binned)": Timed(of("LAFTR")),
    "dCor": Timed(of("DCOR"), epochs=2),
    "scale-free, unbiased": Timed(ours(Penalty(HSIC(Gaussian("scale-free"), estimator="unbiased")))),
    "default penalty": Timed(ours(None)),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rounds", type=int, default=7, help="interleaved repeats")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--width", type=int, default=8, help="of Z; 8 as in the published timings")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS, metavar="METHOD")
    parser.add_argument("--quick", action="store_true", help="write beside the temporary files")
    parser.add_argument("--draw", action="store_true", help="only draw the figure of the last run again")


def task(n: int) -> tuple[Any, Any, Any]:
    """Return the paper's task: S uniform, X = (S + noise, noise), y drawn from the first feature."""
    rng = np.random.default_rng(SEED)
    s = rng.uniform(size=n)
    x = np.column_stack([s + 0.3 * rng.standard_normal(n), rng.standard_normal(n)])
    return x, (rng.uniform(size=n) < 1 / (1 + np.exp(-x[:, 0]))).astype(int), s


def run(arguments: argparse.Namespace) -> None:
    """Time epochs after a warm-up epoch for each method in turn; print medians of ratios by round."""
    name = str(Path(tempfile.gettempdir()) / "quick-runtime.json") if arguments.quick else "runtime.json"
    if not arguments.draw:
        torch.set_num_threads(arguments.threads)
        names = [name for name in METHODS if name in {"Unfair", *arguments.methods}]
        found = {f"n = {n}": timed(n, names, arguments.rounds, arguments.width) for n in arguments.sizes}
        more = {name: getattr(arguments, name) for name in ("threads", "width", "rounds")}
        print(write(name, {**provenance(seed=SEED, **more), "epoch": found}))
    result = json.loads((RESULTS / name).read_text())
    path = figure_path("runtime.png", quick=arguments.quick)
    draw(result, path)
    print(path)


def timed(n: int, names: list[str], rounds: int, width: int) -> dict[str, dict[str, Any]]:
    """Return seconds of an epoch, and how many times those of Unfair they are, for one n."""
    x, y, s = task(n)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        # Forwards and backwards in turn: the machine drifts within a round, too.
        for name in names[:: 1 if number % 2 == 0 else -1]:
            model = METHODS[name].make(METHODS[name].epochs + 1).set_params(encoder=(50, width))
            model.fit(x, y, sensitive_features=s)
            seconds[name].append(statistics.median(record["seconds"] for record in model.history_[1:]))
    theirs: dict[str, list[float]] = {}
    for row in published("runtime"):
        if int(row["n"]) == n:
            theirs.setdefault(row["method"], []).append(float(row["seconds"]))
    result = {}
    for name, values in seconds.items():
        ratios = sorted(a / b for a, b in zip(values, seconds["Unfair"], strict=True))
        result[name] = {
            "seconds": float(f"{statistics.median(values):.3g}"),
            "over Unfair": round(statistics.median(ratios), 2),
            "quartiles": [round(q, 2) for q in statistics.quantiles(ratios)[::2]] if rounds > 1 else None,
        }
        same = theirs.get(METHODS[name].published or "")
        if same:
            result[name]["published seconds"] = float(f"{statistics.median(same):.3g}")
        print(n, name, result[name], flush=True)
    return result


# The lines of the figure: colour by method, full as it is here, dashed as published formulas are written.
LINES = {
    "FREM, loop": (ORANGE, "--"),
    "FREM": (ORANGE, "-"),
    "FRHSIC, as written": (BLUE, "--"),
    "FRHSIC": (BLUE, "-"),
    "Reg-GDP, loop": (GREEN, "--"),
    "Reg-GDP": (GREEN, "-"),
    "Unfair": ("0.3", "-"),
}


def colour_of(name: str) -> str:
    """Return the colour of a method; grey for those without a line."""
    return LINES.get(name, ("0.6", ""))[0]


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw seconds against n beside the published ones, and the ratios of all methods at the largest n."""
    import matplotlib.pyplot as plt

    sizes = [int(key.rpartition(" ")[2]) for key in result["epoch"]]
    cells = list(result["epoch"].values())
    with house_style():
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(7.2, 3.7), width_ratios=(1.25, 1), layout="constrained"
        )
        for name, (colour, style) in LINES.items():
            if name not in cells[0]:
                continue
            left.loglog(
                sizes, [cell[name]["seconds"] for cell in cells], style, color=colour, lw=1.4, label=name
            )
            if all("published seconds" in cell[name] for cell in cells):
                left.loglog(
                    sizes,
                    [cell[name]["published seconds"] for cell in cells],
                    "o",
                    color=colour,
                    ms=3.5,
                    mfc="white",
                )
        left.plot([], [], "o", color="0.3", ms=3.5, mfc="white", label="published seconds")
        left.set(xlabel="rows n", ylabel="seconds for an epoch")
        left.set_xticks(sizes, [f"{n / 1000:g}k" for n in sizes])
        left.minorticks_off()
        left.grid(True)
        low, high = left.get_ylim()
        left.set_ylim(low, high * (high / low) ** 0.55)  # room for the legend
        left.legend(fontsize=6.5, loc="upper left", ncols=2, columnspacing=1.0)
        last = sorted(cells[-1].items(), key=lambda item: item[1]["over Unfair"])
        ratios = [cell["over Unfair"] for _, cell in last]
        bars = right.barh(
            [name for name, _ in last],
            ratios,
            color=["white" if METHODS[name].published else colour_of(name) for name, _ in last],
            edgecolor=[colour_of(name) for name, _ in last],
            height=0.7,
        )
        right.bar_label(bars, fmt="%.3g", padding=2, fontsize=7)
        right.set_xscale("log")
        right.set_xlim(0.8, 2.2 * max(ratios))
        ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100) if tick < 2.2 * max(ratios)]
        right.set_xticks(ticks, map(str, ticks))
        right.minorticks_off()
        right.set_xlabel(f"times an epoch of Unfair, n = {sizes[-1]:,}")
        for side in ("top", "right"):
            right.spines[side].set_visible(False)
        figure.savefig(path, dpi=200)
        plt.close(figure)
