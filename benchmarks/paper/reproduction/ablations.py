"""The synthetic task and its ablations: fig:synthetic, tab:ablation_kernel and tab:ablation_dim."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from benchmarks._figures import house_style
from benchmarks.paper import synthetic as task
from benchmarks.paper.reproduction._draw import PAGE, THEIRS, look
from benchmarks.paper.reproduction._text import markdown

Row = dict[str, Any]

_LOOKS = {
    "published": ("FRHSIC as published, mean of draws", look("FRHSIC-published")["color"], "o"),
    "default": ("FRHSIC, default of this package", look("FRHSIC")["color"], "h"),
}
# The ablation script's own network; the text describes the other.
_SCRIPT, _TEXT = "50", "64-64"


def synthetic() -> Figure:
    """Draw GDP, accuracy and what is kept of the attainable gain against lambda, and GDP against HSIC."""
    rows = task.synthetic_summary()
    with house_style():
        figure = Figure(figsize=(PAGE, 4.7))
        axes = figure.subplots(2, 2)
        (gdp, accuracy), (against, kept) = axes
        file = [row for row in rows if "paper" in row]
        lams = [row["lam"] for row in file]
        told = {name: [row["paper"][name] for row in file] for name in ("gdp_grid", "accuracy", "hsic")}
        style: dict[str, Any] = {"color": THEIRS, "marker": "o", "mfc": "none"}
        again = {name: [row["same_random_numbers"][name] for row in file] for name in told}
        cross: dict[str, Any] = {"color": "#000000", "marker": "x", "lw": 0, "ms": 4.5, "zorder": 5}
        for values, how, label in (
            (told, style, "published run"),
            (again, cross, "ours with its random numbers"),
        ):
            gdp.plot(lams, values["gdp_grid"], **how, label=label)
            accuracy.plot(lams, values["accuracy"], **how)
            against.plot(values["hsic"], values["gdp_grid"], **how | {"lw": 0})
        for penalty, (label, colour, marker) in _LOOKS.items():
            ours = [row for row in rows if row["penalty"] == penalty]
            lams = [row["lam"] for row in ours]
            style = {"color": colour, "marker": marker, "elinewidth": 0.6}
            for axis, name in ((gdp, "gdp_grid"), (accuracy, "accuracy_law"), (kept, "loss_kept")):
                axis.errorbar(lams, _means(ours, name), yerr=_deviations(ours, name), **style, label=label)
            against.plot(_means(ours, "hsic"), _means(ours, "gdp_grid"), marker, color=colour)
        best, constant = task.references()[0], task.references()[-1]
        for axis, name in ((accuracy, "accuracy_law"), (kept, "loss_kept")):
            axis.axhline(best[name], color="#000000", lw=0.8, ls="--", label="P(Y = 1 | X) itself")
            axis.axhline(constant[name], color="#000000", lw=0.8, ls=":", label="a constant prediction")
        base = file[0]["published_rows"]["base_rate"] if file else None
        if base is not None:
            accuracy.axhline(base, color=THEIRS, lw=0.8, ls=":", label="the same on the published test rows")
        for axis in (gdp, accuracy, kept):
            axis.set_xscale("symlog", linthresh=0.1, linscale=0.4)
            axis.set_xlim(-0.03, 80)
            axis.set_xticks([0, 0.1, 1, 10], ["0", "0.1", "1", "10"])
            axis.set_xlabel("λ")
        gdp.set(ylabel="GDP (logits, grid)", yscale="log")
        accuracy.set_ylabel("accuracy")
        accuracy.set_title("grey and ×: on 1,000 rows; lines: under the law", loc="left", fontsize=7)
        kept.set_ylabel("gain over a constant kept\n(cross-entropy)")
        against.set(
            xscale="log", yscale="log", xlabel="HSIC of Z and S, bandwidths 1", ylabel="GDP (logits, grid)"
        )
        handles: dict[str, Any] = {}
        for axis in axes.flat:
            lines, labels = axis.get_legend_handles_labels()
            handles |= dict(zip(labels, lines, strict=True))
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3)
    return figure


def _means(rows: Sequence[Row], name: str) -> list[float]:
    return [row[name]["mean"] for row in rows]


def _deviations(rows: Sequence[Row], name: str) -> list[float]:
    return [row[name]["sd"] for row in rows]


# What the ablation tables show at the published lambda and at the weaker one, with their digits.
_COLUMNS = {
    5.0: {"accuracy": 3, "gdp_grid": 4, "same_label": 3, "loss_kept": 2},
    1.0: {"gdp_grid": 4, "loss_kept": 2},
}
_HEADINGS = {"accuracy": "accuracy", "gdp_grid": "GDP", "same_label": "one label", "loss_kept": "gain kept"}
_ARMS = {
    (_SCRIPT, "published"): "as published",
    (_TEXT, "published"): "as published, network of the text",
    (_TEXT, "default"): "default of this package, network of the text",
}


def kernels() -> str:
    """Return tab:ablation_kernel beside ours."""
    return _table(task.kernels_summary(), {"kernel_z": "kernel of Z", "kernel_s": "kernel of S"})


def dimension() -> str:
    """Return tab:ablation_dim beside ours."""
    return _table(task.dimension_summary(), {"width": "width of Z"})


def _plus_minus(cell: dict[str, float], digits: int) -> str:
    return f"{cell['mean']:.{digits}f} ± {cell['sd']:.{digits}f}"


def _table(rows: Sequence[Row], keys: dict[str, str]) -> str:
    header = ["penalty", *keys.values(), "accuracy: paper", "GDP: paper"]
    for lam, columns in _COLUMNS.items():
        header += [f"λ = {lam:g}: {_HEADINGS[name]}" for name in columns]
    cells = {(row["network"], row["penalty"], *(row[key] for key in keys), row["lam"]): row for row in rows}
    lines = []
    for (network, penalty), title in _ARMS.items():
        for key in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
            paper = cells[network, penalty, *key, 5.0].get("paper")
            line = [title, *map(str, key)]
            line += [f"{paper['accuracy']:.3f}", f"{paper['gdp_grid']:.4f}"] if paper else ["", ""]
            for lam, columns in _COLUMNS.items():
                row = cells[network, penalty, *key, lam]
                line += [
                    f"{row[name]['mean']:.{d}f} ± {row[name]['sd']:.{d}f}" for name, d in columns.items()
                ]
            lines.append(line)
    left = range(3) if len(keys) > 1 else (0,)
    return markdown(header, lines, left=left) + (
        f"\nOurs: mean ± deviation over {rows[0]['seeds']} draws of the task; the paper has one run at λ = "
        "5. The script has one hidden layer of 50, the text two of 64.\n\n"
        "Accuracy and GDP (logits, grid) are on 1,000 test rows, as published. The other two are on 20,000 "
        "fresh rows. *One label*: the share with the commonest predicted label (1: a constant prediction). "
        "*Gain kept*: of the gain in cross-entropy of P(Y = 1 given X) over a constant.\n"
    )


def synthetic_numbers() -> dict[str, float]:
    """Return whether GDP falls with lambda, and what predictions are where accuracy is called stable."""
    rows = [row for row in task.synthetic_summary() if row["penalty"] == "published"]
    by_lam = {row["lam"]: row for row in rows}
    file = [row["paper"]["gdp_grid"] for row in rows if "paper" in row]
    again = [row["same_random_numbers"]["gdp_grid"] for row in rows]
    strong = [row for row in rows if row["lam"] >= 5.0]
    return {
        "base_rate": rows[0]["published_rows"]["base_rate"],
        "file_rises": sum(b > a for a, b in pairwise(file)),
        "file_gdp_01": file[1],
        "file_gdp_05": file[2],
        "same_rises": sum(b > a for a, b in pairwise(again)),
        "mean_rises": sum(b > a for a, b in pairwise(_means(rows, "gdp_grid"))),
        "same_farthest_gdp": max(abs(a - b) for a, b in zip(file, again, strict=True)),
        "same_farthest_accuracy": max(
            abs(row["paper"]["accuracy"] - row["same_random_numbers"]["accuracy"]) for row in rows
        ),
        "same_one_label": min(row["same_random_numbers"]["same_label"] for row in strong),
        "one_label": min(_means(strong, "same_label")),
        "kept_unfair": by_lam[0.0]["loss_kept"]["mean"],
        "kept_1": by_lam[1.0]["loss_kept"]["mean"],
        "kept_1_sd": by_lam[1.0]["loss_kept"]["sd"],
        "kept_5": by_lam[5.0]["loss_kept"]["mean"],
        "gdp_unfair": by_lam[0.0]["gdp_grid"]["mean"],
        "gdp_1": by_lam[1.0]["gdp_grid"]["mean"],
        "gdp_5": by_lam[5.0]["gdp_grid"]["mean"],
        "r2_50": by_lam[50.0]["r2_s_linear"]["mean"],
        "accuracy_constant": task.references()[-1]["accuracy_law"],
        "accuracy_best": task.references()[0]["accuracy_law"],
    }


def ablation_numbers() -> dict[str, float]:
    """Return the cell that both ablations share, the spread over draws, and how constant predictions are."""
    numbers = {
        "paper_kernel_table": task.PAPER_KERNELS["Gaussian", "Gaussian"][1],
        "paper_dimension_table": task.PAPER_DIMENSION[8][1],
    }
    for name, rows in (("kernels", task.kernels_summary()), ("dimension", task.dimension_summary())):
        for network in (_SCRIPT, _TEXT):
            key = f"{name}_{network.replace('-', '_')}"
            for lam in task.ABLATION_LAMS:
                chosen = [
                    row
                    for row in rows
                    if (row["network"], row["penalty"], row["lam"]) == (network, "published", lam)
                ]
                if not chosen:
                    continue
                numbers |= {
                    f"{key}_{lam:g}_gdp_low": min(_means(chosen, "gdp_grid")),
                    f"{key}_{lam:g}_gdp_high": max(_means(chosen, "gdp_grid")),
                    f"{key}_{lam:g}_gdp_sd_high": max(_deviations(chosen, "gdp_grid")),
                    f"{key}_{lam:g}_kept_low": min(_means(chosen, "loss_kept")),
                    f"{key}_{lam:g}_kept_high": max(_means(chosen, "loss_kept")),
                    f"{key}_{lam:g}_one_label_low": min(_means(chosen, "same_label")),
                }
    return numbers
