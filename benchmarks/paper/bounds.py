"""Adult and Crime: the paper's bound on the gap of every head, beside the worst-case head (3 minutes).

Theorem hsic_gdp bounds the mean-square gap of every head f of norm one, resolved on the m best-conditioned
directions of S, by HSIC_b / lambda_m. What it bounds can be computed: the worst head's mean-square gap is the
largest eigenvalue of P_m K~ P_m / n (``certify``). Both are shown with what chance alone gives the worst head
and with what is left of it on rows that did not choose it.
"""

import argparse
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._figures import house_style
from benchmarks._protocol import SEEDS, Array, Data, Seen, dataset, published, score_of, see, small_parts
from benchmarks._record import DOCS, Runs
from frhsic import HSIC
from frhsic.inference.bounds import certify
from frhsic.kernels import Gaussian

LAMS = (0.1, 1.0, 10.0, 100.0, 1000.0)
SIGMAS = (0.1, 0.3, 1.0, 3.0, 10.0)
# The published Crime figures take household size as sensitive; ours take racial composition, as the text.
TITLES = {
    "adult": "Adult, S = age",
    "crime": "Crime, S = racepctblack",
    "crime-householdsize": "Crime, S = householdsize\n(as in the published script)",
}
PUBLISHED_NAMES = {"adult": "adult", "crime-householdsize": "communities"}
CUT = 1e-6  # of the largest eigenvalue: the paper's numerical zero
FINE = 1e-10  # what double precision can still tell from zero
SMALL = 3  # directions of S in the small view
PICTURED = 1.0  # the lambda of the lower panels
ANCHORS = 64
BOUND = "the paper's bound, root of HSIC / lambda_m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--permutations", type=int, default=199)
    parser.add_argument("--fresh", action="store_true", help="forget the results, not the trained models")
    parser.add_argument("--retrain", action="store_true", help="train again even where the cache has a model")
    parser.add_argument("--draw", action="store_true", help="only draw the figure from the results")


def gram(x: Array, sigma: float) -> Array:
    """Return the Gaussian Gram matrix of the rows of x."""
    rows = torch.from_numpy(x.reshape(len(x), -1))
    return Gaussian(sigma).gram(rows, rows).numpy()


def centred(K: Array) -> Array:
    """Return H K H."""
    K = K - K.mean(axis=0)
    return K - K.mean(axis=1, keepdims=True)


def published_median(x: Array) -> float:
    """Return the scripts' bandwidth: the median distance of two rows plus 1e-5."""
    rows = torch.from_numpy(x.reshape(len(x), -1))
    distances = torch.cdist(rows, rows)[~torch.eye(len(rows), dtype=torch.bool)]
    return distances.median().item() + 1e-5


def spectrum(s: Array, sigma: float) -> tuple[Array, Array]:
    """Return the eigenvalues of L~ / n, the largest first, and their eigenvectors as columns."""
    L = centred(gram(s, sigma))
    values, vectors = np.linalg.eigh((L + L.T) / (2 * len(s)))
    return values[::-1], vectors[:, ::-1]


def single_spectrum(s: Array, sigma: float) -> Array:
    """Return the same eigenvalues with H a matrix and every step in single precision, as in the scripts."""
    rows = torch.from_numpy(s).float()[:, None]
    L = torch.exp(-(torch.cdist(rows, rows) ** 2) / (2 * sigma**2))
    H = torch.eye(len(s)) - 1.0 / len(s)
    return torch.linalg.eigvalsh(H @ L @ H / len(s)).flip(0).double().numpy()


def smallest(eigenvalues: Array) -> tuple[float, int]:
    """Return the paper's lambda_S, the smallest eigenvalue above the cut, and how many are above it."""
    m = int((eigenvalues > max(CUT * eigenvalues[0], 1e-12)).sum())
    return float(eigenvalues[m - 1]), m


def judge(data: Data, seen: Seen, n_permutations: int) -> dict[str, Any]:
    """Return both sides of the bound on the test rows, as published and for every m."""
    part = seen.parts["test"]
    s = (part.s - data.s.min()) / (data.s.max() - data.s.min())  # on all rows, as in the published script
    n, sigma_s = len(s), published_median(s)
    certificate = certify(
        part.z,
        s,
        dependence=HSIC(Gaussian(1.0), Gaussian(sigma_s)),
        n_permutations=n_permutations,
        random_state=SEEDS[0],
    )
    eigenvalues, E = spectrum(s, sigma_s)
    lambda_s, m_s = smallest(eigenvalues)
    E = E[:, : len(certificate.heads)]
    K = gram(part.z, 1.0)
    anchors = K[np.random.RandomState(SEEDS[0] + 1).choice(n, ANCHORS, replace=False)]
    anchors = anchors - anchors.mean(axis=1, keepdims=True)  # (64, n): each f = k(z0, .) has norm one
    variances = (anchors**2).mean(axis=1)
    along = np.cumsum((anchors @ E) ** 2, axis=1) / n  # (64, m): |P_m d|^2 / n
    own = score_of(part.output, regression=data.regression)
    gaps = np.cumsum(E * (E.T @ (own - own.mean())), axis=1)  # (n, m): P_m d
    by_m = [
        {
            **row.to_dict(),
            "anchors_max_rms": float(np.sqrt(along[:, j].max())),
            "model_gdp": float(np.abs(gaps[:, j]).mean()),
        }
        for j, row in enumerate(certificate.heads)
    ]
    return {
        "n": n,
        "distinct_s": len(np.unique(s)),
        "sigma_s": sigma_s,
        "hsic": certificate.hsic,
        "lambda_s": lambda_s,
        "m_s": m_s,
        "rhs": certificate.hsic / lambda_s,
        "lhs_mean": float(variances.mean()),
        "lhs_max": float(variances.max()),
        "ceiling": float(np.linalg.eigvalsh(centred(K))[-1] / n),
        "spread_of_z": float(np.sqrt(part.z.var(axis=0).sum())),
        "certificate": {bound.name: bound.value for bound in certificate.bounds},
        "by_m": by_m,
    }


def eigenvalue(data: Data, sigma: float) -> dict[str, Any]:
    """Return lambda_S at n = 1,500 in double precision and in single precision, as the scripts have it."""
    s = data.s_unit[small_parts(len(data.s))[0]]
    found: dict[str, Any] = {"n": len(s), "distinct_s": len(np.unique(s))}
    for name, eigenvalues in (("double", spectrum(s, sigma)[0]), ("single", single_spectrum(s, sigma))):
        lambda_s, m = smallest(eigenvalues)
        cut = CUT * float(eigenvalues[0])
        found |= {f"lambda_s_{name}": lambda_s, f"m_{name}": m, f"cut_{name}": cut}
        found[f"cut_over_lambda_s_{name}"] = cut / lambda_s
        if name == "double":
            found["m_fine"] = int((eigenvalues > FINE * eigenvalues[0]).sum())
    return found


def slope(sigmas: NDArray[Any], values: NDArray[Any]) -> float:
    """Return the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sigmas), np.log(values), 1)[0])


def tables(runs: Runs, epochs: int) -> dict[str, Any]:
    """Print both tables beside the published figures and return them."""
    summary: dict[str, Any] = {"tightness": [], "lambda_s": []}
    theirs = {(row["dataset"], float(row["lam"])): row for row in published("bound_tightness")}
    print("\nBoth sides of the bound on 300 test rows (published in brackets)")
    for run in runs.runs:
        if run["kind"] != "gap" or run["epochs"] != epochs:
            continue
        old = theirs.get((PUBLISHED_NAMES.get(run["dataset"], ""), run["lam"]))
        at = {row["m"]: row for row in run["by_m"]}
        wide, small = at[run["m_s"]], at[min(SMALL, len(at))]
        row = {name: run[name] for name in ("dataset", "lam", "hsic", "rhs", "lhs_mean", "lhs_max", "m_s")}
        row |= {
            "ceiling": run["ceiling"],
            "worst_at_m_s": wide["worst_rms"] ** 2,
            "null_95_at_m_s": wide["null_high"] ** 2,
            "bound_small": small["paper_bound"] ** 2,
            "worst_small": small["worst_rms"] ** 2,
            "null_95_small": small["null_high"] ** 2,
        }
        if old:
            row |= {
                f"published_{name}": float(old[column])
                for name, column in (
                    ("hsic", "hsic"), ("rhs", "bound_rhs"), ("lhs_mean", "lhs_mean"), ("lhs_max", "lhs_max"),
                    ("lambda_s", "hat_lambda_S"), ("sigma_s", "sigma_s"),
                )
            }  # fmt: skip
        summary["tightness"].append(row)
        told = f"({float(old['bound_rhs']):.2g}; {float(old['lhs_max']):.2g})" if old else ""
        print(
            f"{run['dataset']:20s} lam {run['lam']:6g}: bound {row['rhs']:.2g}, anchors at most "
            f"{row['lhs_max']:.2g} {told}, any head at most {row['ceiling']:.2g}; m = {row['m_s']}: worst "
            f"{row['worst_at_m_s']:.2g} (chance {row['null_95_at_m_s']:.2g}); m = {small['m']}: bound "
            f"{row['bound_small']:.2g}, worst {row['worst_small']:.2g} (chance {row['null_95_small']:.2g}); "
            f"GDP of the worst head there {small['own_gdp']:.2g}, on other rows {small['crossfit_gdp']:.2g} "
            f"(chance {small['crossfit_null']:.2g})"
        )
    theirs = {(row["dataset"], float(row["sigma"])): row for row in published("lambda_vs_sigma")}
    print("\nlambda_S at n = 1,500: double precision, single precision (published)")
    for name in TITLES:
        chosen = [run for run in runs.runs if run["kind"] == "eigenvalue" and run["dataset"] == name]
        chosen.sort(key=lambda run: run["sigma"])
        for run in chosen:
            old = theirs.get((PUBLISHED_NAMES.get(name, ""), run["sigma"]))
            row = {key: value for key, value in run.items() if key not in ("kind", "commit")}
            if old:
                row["published"] = float(old["hat_lambda_S"])
            summary["lambda_s"].append(row)
            told = f"({float(old['hat_lambda_S']):.3g})" if old else ""
            print(
                f"{name:20s} sigma {run['sigma']:4g}: {run['lambda_s_double']:.3g} (number "
                f"{run['m_double']}), {run['lambda_s_single']:.3g} (number {run['m_single']}) {told}; the "
                f"cut is {run['cut_over_lambda_s_double']:.1%} and "
                f"{run['cut_over_lambda_s_single']:.1%} of it"
            )
        sigmas = np.array([run["sigma"] for run in chosen])
        slopes = {
            precision: slope(sigmas, np.array([run[f"lambda_s_{precision}"] for run in chosen]))
            for precision in ("double", "single")
        }
        slopes["cut"] = slope(sigmas, np.array([run["cut_double"] for run in chosen]))
        summary.setdefault("slopes", {})[name] = slopes
        print(f"{name:20s} slopes", {key: round(value, 2) for key, value in slopes.items()})
    return summary


@house_style(11.0)
def draw(summary: dict[str, Any], runs: Runs, epochs: int) -> None:
    """Draw both figures."""
    import matplotlib.pyplot as plt

    path = DOCS / "figures"
    path.mkdir(exist_ok=True)
    figure = plt.figure(figsize=(13.0, 8.4))
    axes = figure.subplots(2, len(TITLES), sharey="row")
    for column, (name, title) in enumerate(TITLES.items()):
        rows = [row for row in summary["tightness"] if row["dataset"] == name]
        rows.sort(key=lambda row: row["lam"])
        _draw_by_lam(axes[0, column], rows)
        axes[0, column].set_title(title)
        run = next(
            run
            for run in runs.runs
            if (run["kind"], run["dataset"], run.get("lam"), run.get("epochs"))
            == ("gap", name, PICTURED, epochs)
        )
        _draw_by_m(axes[1, column], run)
    axes[0, 0].set_ylabel("mean-square gap, heads of norm one")
    axes[1, 0].set_ylabel(f"gap at lambda = {PICTURED:g}, heads of norm one")
    for row in axes:
        handles = {label: handle for axis in row for handle, label in zip(*_legend(axis), strict=True)}
        row[-1].legend(
            list(handles.values()), list(handles), loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )  # fmt: skip
    figure.savefig(path / "bounds.png", dpi=130)
    plt.close(figure)


def _legend(axis: Any) -> tuple[list[Any], list[str]]:
    handles, labels = axis.get_legend_handles_labels()
    return handles, labels


def _draw_by_lam(axis: Any, rows: list[dict[str, Any]]) -> None:
    lams = [row["lam"] for row in rows]

    def line(name: str, label: str, colour: str, marker: str, style: str = "-") -> None:
        axis.loglog(lams, [row[name] for row in rows], style, color=colour, marker=marker, ms=5, label=label)

    line("rhs", "the paper's bound, HSIC / lambda_S", "#D55E00", "s", "--")
    if "published_rhs" in rows[0]:
        line("published_rhs", "the paper's bound as published", "#D55E00", "x", ":")
    line("bound_small", f"the bound at m = {SMALL}", "#E69F00", "s", "--")
    line("ceiling", "largest variance of any head (no S needed)", "#000000", "", "-")
    line("worst_at_m_s", "worst head, same m as the bound", "#0072B2", "o")
    line("worst_small", f"worst head, m = {SMALL}", "#56B4E9", "o")
    line("lhs_max", "anchors k(z0, .): largest variance", "#009E73", "^")
    if "published_lhs_max" in rows[0]:
        line("published_lhs_max", "anchors: largest variance as published", "#009E73", "x", ":")
    line("lhs_mean", "anchors: mean variance", "#CC79A7", "v", ":")
    axis.set_xlabel("lambda in training")
    axis.grid(True)


def _draw_by_m(axis: Any, run: dict[str, Any]) -> None:
    from matplotlib.ticker import MaxNLocator

    rows = run["by_m"]
    m = [row["m"] for row in rows]

    def column(name: str) -> list[float]:
        return [row[name] for row in rows]

    ceiling = math.sqrt(run["ceiling"])
    axis.semilogy(m, column("paper_bound"), "--", color="#D55E00", marker="s", ms=4, label=BOUND)
    axis.axhline(ceiling, color="#000000", lw=1.2, label="largest s.d. of any head (no S needed)")
    axis.plot(m, column("worst_rms"), color="#0072B2", marker="o", ms=4, label="worst head, root mean square")
    axis.plot(m, column("own_gdp"), color="#56B4E9", marker="o", ms=4, label="worst head, its GDP")
    axis.fill_between(
        m, column("null_mean"), column("null_high"), color="#0072B2", alpha=0.2, lw=0,
        label="its root mean square by chance (mean to 95 %)",
    )  # fmt: skip
    axis.plot(m, column("crossfit_gdp"), color="#009E73", marker="D", ms=4, label="GDP on the other half")
    axis.plot(m, column("crossfit_null"), ":", color="#009E73", label="the same by chance")
    axis.plot(
        m,
        column("model_gdp"),
        ":",
        color="#CC79A7",
        marker="v",
        ms=4,
        label="GDP of the model's own prediction",
    )
    axis.axvline(run["m_s"], color="#D55E00", lw=0.8, alpha=0.6)
    axis.text(
        run["m_s"], 0.97, f"the paper's m: {rows[run['m_s'] - 1]['paper_bound']:.0f} ", color="#D55E00",
        rotation=90, ha="right", va="top", transform=axis.get_xaxis_transform(),
    )  # fmt: skip
    axis.set_ylim(0.005, 5.0)  # the bound leaves the picture: no head of norm one has a gap above one
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("m, directions of S resolved")
    axis.grid(True)


def run(arguments: argparse.Namespace) -> None:
    """Train and judge what is missing, print the tables and draw the figure."""
    runs = Runs("bounds.json", fresh=arguments.fresh and not arguments.draw, seeds=SEEDS[:1])
    if arguments.draw:
        summary = tables(runs, arguments.epochs)
        draw(summary, runs, arguments.epochs)
        return
    for name in TITLES:
        data = dataset(name)
        _, train, test = small_parts(len(data.y))
        for lam in LAMS:
            key: dict[str, Any] = {"kind": "gap", "dataset": name, "lam": lam, "epochs": arguments.epochs}
            if not runs.missing(**key):
                continue
            seen = see(
                data, train, {"test": test}, protocol="bounds", repeat=0, lam=lam, epochs=arguments.epochs,
                retrain=arguments.retrain,
            )  # fmt: skip
            found = judge(data, seen, arguments.permutations)
            runs.add(**key, **found, trained_by=seen.commit, training_seconds=round(seen.seconds, 1))
            print(name, lam, f"bound {found['rhs']:.3g}", flush=True)
        for sigma in SIGMAS:
            if runs.missing(kind="eigenvalue", dataset=name, sigma=sigma):
                runs.add(kind="eigenvalue", dataset=name, sigma=sigma, **eigenvalue(data, sigma))
    summary = tables(runs, arguments.epochs)
    print(runs.write(**summary))
    draw(summary, runs, arguments.epochs)
