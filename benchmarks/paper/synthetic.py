"""The paper's synthetic task: its seven lambdas, its kernels and its widths of Z (15 minutes)."""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch
from sklearn.linear_model import LinearRegression
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks._protocol import SEEDS, Array, published, published_gdp
from benchmarks._record import RESULTS, Runs
from frhsic import GDP, HSIC, FRHSICClassifier, Penalty, Training
from frhsic.datasets import make_classification
from frhsic.estimators import fit_path
from frhsic.kernels import Gaussian, InverseMultiquadric, Kernel, Laplace, Linear
from frhsic.penalty import PenaltySum

See = Callable[[Array], tuple[Array, Array]]  # x -> z, logits

FILE = "synthetic.json"
TRAINED = 4_000  # the first rows of 5,000; the others are the published test part
FRESH = 20_000  # rows of the same law that no model has seen
FEW = 2_000  # of them, for the measure that takes all pairs
LAMS = (0.0, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0)
# The published lambda of both ablations, and one at which predictions are not constant.
ABLATION_LAMS = (1.0, 5.0)
KERNELS: dict[str, Callable[[Literal["median", "scale-free"]], Kernel]] = {
    "Gaussian": Gaussian,
    "Laplacian": Laplace,
    "IMQ": InverseMultiquadric,
}
WIDTHS = (2, 8, 32, 64)
# Network and penalty of the ablations: "64-64" is the network of the published synthetic script, which the
# text describes, "50" that of the published ablation script.
ARMS = (("64-64", "published"), ("50", "published"), ("64-64", "default"))
EPOCHS = {"synthetic": 100, "ablation": 80}
MEDIAN_ROWS = {"synthetic": 1_000, "ablation": 500}

# Accuracy and GDP as printed in tab:ablation_kernel and tab:ablation_dim of the paper, which no published
# file holds. The script has nine pairs of kernels, the table seven.
PAPER_KERNELS = {
    ("Gaussian", "Gaussian"): (0.620, 0.0015),
    ("Gaussian", "Laplacian"): (0.620, 0.0003),
    ("Gaussian", "IMQ"): (0.620, 0.0006),
    ("Laplacian", "Gaussian"): (0.619, 0.0091),
    ("Laplacian", "Laplacian"): (0.620, 0.0001),
    ("IMQ", "Gaussian"): (0.620, 0.0002),
    ("IMQ", "IMQ"): (0.620, 0.0027),
}
PAPER_DIMENSION = {2: (0.620, 0.0001), 8: (0.620, 0.0001), 32: (0.618, 0.0025), 64: (0.620, 0.0034)}

# On the published test part, as published; then under the law of the task.
PUBLISHED_MEASURES = ("accuracy", "base_rate", "gdp_grid", "hsic")
MEASURES = (
    *PUBLISHED_MEASURES,
    "accuracy_law",
    "loss_kept",
    "gdp_population",
    "nhsic_z",
    "nhsic_prediction",
    "r2_s_linear",
    "same_label",
    "spread",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--fresh", action="store_true", help="forget the runs made before")


@dataclass(frozen=True, eq=False)
class CityBlock(Kernel):
    """The published Laplacian kernel exp(-|x - y|_1 / sigma); this package's has the Euclidean norm.

    sigma is the median Euclidean distance, as published.
    """

    bandwidth: float | None = None

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the Gram matrix, shape ``(..., n, m)``."""
        if self.bandwidth is None:
            raise ValueError("'bandwidth' must be a number by now. Got None. Calibrate first.")
        return (torch.cdist(a, b, p=1.0) / -self.bandwidth).exp()

    def diagonal(self, x: Tensor) -> Tensor:
        """Return ones, shape ``(..., n)``."""
        return torch.ones_like(x[..., 0])

    def bind(self, x: Tensor, weights: Tensor | None = None) -> Kernel:  # noqa: ARG002
        """Return itself."""
        return self

    def calibrate(
        self,
        x: Tensor,
        *,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
        freeze: bool = False,
    ) -> Kernel:
        """Fix sigma on the rows of x."""
        if self.bandwidth is not None:
            return self
        like = Laplace().calibrate(x, weights=weights, generator=generator, freeze=freeze)
        return CityBlock(float(like.bandwidth))

    @property
    def bound(self) -> float:
        """One: k(x, x) = 1 for every x."""
        return 1.0

    @property
    def fixed(self) -> bool:
        """Whether sigma is a number."""
        return self.bandwidth is not None


@dataclass(frozen=True)
class Cell:
    """A path: which experiment, which network, and which form of the penalty with which kernels."""

    part: str
    network: str
    penalty: str
    kernel_z: str = "Gaussian"
    kernel_s: str = "Gaussian"
    width: int = 8

    @property
    def lams(self) -> tuple[float, ...]:
        """Its strengths."""
        return LAMS if self.part == "synthetic" else ABLATION_LAMS


class Law:
    """Rows that no model has seen, with P(Y = 1 | X), which is known: no noise of labels in what is judged.

    With S in an interval and Gaussian noise, X1 is complete for S: a Z that is independent of S is
    independent of X1, hence of Y. To remove all dependence on this task is to predict a constant.
    """

    def __init__(self, n: int = FRESH) -> None:
        rows = make_classification(n, random_state=0)
        self.x, self.s = rows.data, rows.sensitive_features[:, 0]
        self.p = _probability(self.x[:, 0])

    def accuracy(self, q: Array) -> float:
        """Return the expected accuracy of predicted probabilities."""
        return float(np.where(q > 0.5, self.p, 1.0 - self.p).mean())

    def loss(self, q: Array) -> float:
        """Return the expected cross-entropy of predicted probabilities."""
        return float(-(self.p * np.log(q) + (1.0 - self.p) * np.log1p(-q)).mean())

    def kept(self, q: Array) -> float:
        """Return the share of what P(Y | X) gains over a constant in cross-entropy: 0 for a constant."""
        constant = self.loss(np.full_like(self.p, self.p.mean()))
        return (constant - self.loss(q)) / (constant - self.loss(self.p))

    def gdp(self, q: Array) -> float:
        """Return the GDP of predicted probabilities under the law of S."""
        return GDP(0.1)(torch.from_numpy(q), torch.from_numpy(self.s)).item()

    @cached_property
    def references(self) -> list[dict[str, Any]]:
        """P(Y | X) drawn towards its mean: what a model could have at best, a constant, and between."""
        mean = self.p.mean()
        return [
            {
                "shrunk_to": share,
                "accuracy_law": round(self.accuracy(q), 6),
                "loss_kept": round(self.kept(q), 6),
                "gdp_population": round(self.gdp(q), 6),
            }
            for share in (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
            for q in [mean + share * (self.p - mean)]
        ]


class Task:
    """One draw of the task: 4,000 rows to train on, 1,000 to judge as published, and the law itself."""

    def __init__(self, seed: int, law: Law) -> None:
        rows = make_classification(TRAINED + 1_000, random_state=seed)
        s = rows.sensitive_features[:, 0]
        self.seed, self.law = seed, law
        self.x, self.y, self.s = rows.data[:TRAINED], rows.target[:TRAINED], s[:TRAINED]
        self.x_test, self.y_test, self.s_test = rows.data[TRAINED:], rows.target[TRAINED:], s[TRAINED:]

    def path(self, cell: Cell) -> list[See]:
        """Return the models of a stacked pass."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            encoder = make_encoder(cell.network, cell.width)
        penalty: Penalty | PenaltySum
        if cell.penalty == "published":
            rows = MEDIAN_ROWS[cell.part]
            measure = published_hsic(encoder, cell.kernel_z, cell.kernel_s, self.x[:rows], self.s[:rows])
            penalty = Penalty(measure)
        else:
            penalty = default_form(cell.kernel_z, cell.kernel_s)
        model = FRHSICClassifier(
            penalty=penalty,
            encoder=encoder,
            epochs=EPOCHS[cell.part],
            random_state=self.seed,
            training=Training(scaling="none"),
        )
        models = fit_path(model, self.x, self.y, sensitive_features=self.s, lams=cell.lams)
        return [_see_through(one) for one in models]

    def judged(self, see: See) -> dict[str, float]:
        """Return what the paper reports of a model, and what it is under the law of the task."""
        z, logits = see(self.x_test)
        wide = HSIC(Gaussian(1.0), Gaussian(1.0))
        most = float(self.y.mean() > 0.5)
        found = {
            "accuracy": float(np.mean((logits > 0) == self.y_test)),
            "base_rate": float(np.mean(self.y_test == most)),
            "gdp_grid": published_gdp(logits, self.s_test),
            "hsic": wide(torch.from_numpy(z), torch.from_numpy(self.s_test)).item(),
        }
        law = self.law
        z, logits = see(law.x)
        q = _probability(logits)
        z_few, s_few = torch.from_numpy(z[:FEW]), torch.from_numpy(law.s[:FEW])
        of_z = HSIC(Gaussian("scale-free", whiten=True), estimator="unbiased", normalized=True)
        of_score = HSIC(Gaussian("scale-free"), estimator="unbiased", normalized=True)
        line = LinearRegression().fit(see(self.x)[0], self.s)
        found |= {
            "accuracy_law": law.accuracy(q),
            "loss_kept": law.kept(q),
            "gdp_population": law.gdp(q),
            "nhsic_z": of_z(z_few, s_few).item(),
            "nhsic_prediction": of_score(torch.from_numpy(q[:FEW]), s_few).item(),
            "r2_s_linear": float(line.score(z, law.s)),
            "same_label": float(max(np.mean(q > 0.5), np.mean(q <= 0.5))),
            "spread": float(np.sqrt(z.var(axis=0).sum())),
        }
        return {name: float(f"{value:.6g}") for name, value in found.items()}


def make_encoder(network: str, width: int) -> nn.Sequential:
    """Return one of the published encoders, drawn from PyTorch's own generator as published."""
    if network == "50":
        return nn.Sequential(nn.Linear(2, 50), nn.SELU(), nn.Linear(50, width))
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, width))


@torch.no_grad()
def published_hsic(encoder: nn.Module, of_z: str, of_s: str, x: Array, s: Array) -> HSIC:
    """Return the published penalty: biased, both scales the medians before training, held to its end."""
    kernel_z: Kernel = CityBlock() if of_z == "Laplacian" else KERNELS[of_z]("median")
    z = encoder(torch.from_numpy(x).float())
    return HSIC(kernel_z, KERNELS[of_s]("median")).calibrate(z, torch.from_numpy(s).float())


def default_form(of_z: str, of_s: str) -> PenaltySum:
    """Return this package's default penalty with other kernels; of two Gaussians it is the default."""
    mean = HSIC(Linear(), KERNELS[of_s]("median"))
    rest = HSIC(KERNELS[of_z]("scale-free"), KERNELS[of_s]("median"), estimator="unbiased")
    return Penalty(mean, on="prediction") + Penalty(rest)


def published_stream(task: Task) -> list[See]:
    """Train the seven models with the random numbers of the published script: weights, batches, order.

    All seven draw from one generator, one after the other, so that none can be had without those before it.
    """
    x, y, s = (torch.from_numpy(part).float() for part in (task.x, task.y, task.s))
    found = []
    with torch.random.fork_rng():
        torch.manual_seed(task.seed)
        for lam in LAMS:
            encoder, head = make_encoder("64-64", 8), nn.Linear(8, 1)
            rows = MEDIAN_ROWS["synthetic"]
            measure = published_hsic(encoder, "Gaussian", "Gaussian", task.x[:rows], task.s[:rows])
            optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
            loader = DataLoader(TensorDataset(x, y, s), batch_size=256, shuffle=True)
            for _ in range(EPOCHS["synthetic"]):
                for x_batch, y_batch, s_batch in loader:
                    z = encoder(x_batch)
                    loss = nn.functional.binary_cross_entropy_with_logits(head(z).squeeze(1), y_batch)
                    loss = loss + lam * measure(z, s_batch)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            found.append(_see_by(encoder.double(), head.double()))
    return found


def _see_through(model: FRHSICClassifier) -> See:
    return lambda x: (model.transform(x), model.decision_function(x))


def _see_by(encoder: nn.Module, head: nn.Module) -> See:
    @torch.no_grad()
    def see(x: Array) -> tuple[Array, Array]:
        z = encoder(torch.from_numpy(x))
        return z.numpy(), head(z).squeeze(1).numpy()

    return see


def _probability(logits: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-logits))


def cells() -> list[Cell]:
    """Return every path to be trained for each seed: of the seven lambdas, then of both ablations."""
    found = [Cell("synthetic", "64-64", penalty) for penalty in ("published", "default")]
    for arm in ARMS:
        found += [Cell("ablation", *arm, of_z, of_s) for of_z, of_s in PAPER_KERNELS]
        found += [Cell("ablation", *arm, width=width) for width in WIDTHS if width != 8]
    return found


def run(arguments: argparse.Namespace) -> None:
    """Train what is missing, a path at a time, print the tables and write."""
    torch.set_num_threads(1)
    runs = Runs(FILE, fresh=arguments.fresh, seeds=SEEDS, epochs=EPOCHS, fresh_rows=FRESH)
    law = Law()
    tasks = {seed: Task(seed, law) for seed in SEEDS}
    if runs.missing(part="stream"):
        key = {"part": "stream", "network": "64-64", "penalty": "published", "seed": SEEDS[0]}
        _add(runs, key, LAMS, tasks[SEEDS[0]], published_stream)
    todo = [
        (cell, task)
        for cell in cells()
        for seed, task in tasks.items()
        if runs.missing(**asdict(cell), seed=seed)
    ]
    for done, (cell, task) in enumerate(todo, 1):
        print(f"{done}/{len(todo)} ", end="")
        _add(runs, {**asdict(cell), "seed": task.seed}, cell.lams, task, partial(Task.path, cell=cell))
    path = runs.write(references=law.references, published=published("synthetic"))
    print("\nP(Y | X) drawn towards its mean")
    for one in law.references:
        print("  ".join(f"{name} {value:.4f}" for name, value in one.items()))
    for summary in (synthetic_summary, kernels_summary, dimension_summary):
        print(f"\n{summary.__name__}")
        show(summary())
    print(path)


def _add(
    runs: Runs,
    key: dict[str, Any],
    lams: Sequence[float],
    task: Task,
    train: Callable[[Task], list[See]],
) -> None:
    start = time.process_time()
    models = train(task)
    seconds = round(time.process_time() - start, 1)
    found = [
        {**key, "lam": lam, **task.judged(see), "seconds": seconds}
        for lam, see in zip(lams, models, strict=True)
    ]
    for one in found:  # together: a killed run leaves a path whole or not at all
        runs.runs.append({**one, "commit": runs.header["commit"]})
    runs.write()
    print(*key.values(), f"{seconds} s", flush=True)


# What the tables and the figure are made of, from the committed results alone.


def _results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / FILE).read_text())
    return found


def _of(runs: list[dict[str, Any]], **key: Any) -> list[dict[str, Any]]:
    return [one for one in runs if all(one[name] == value for name, value in key.items())]


def _row(chosen: list[dict[str, Any]], **key: Any) -> dict[str, Any]:
    """Return mean and deviation over seeds of every measure, and the run on the published rows."""
    row: dict[str, Any] = {**key, "seeds": len(chosen)}
    for name in MEASURES:
        values = [one[name] for one in chosen]
        # The published deviations are those of a population, too.
        row[name] = {"mean": statistics.mean(values), "sd": statistics.pstdev(values)}
    (first,) = _of(chosen, seed=SEEDS[0])
    return {**row, "published_rows": {name: first[name] for name in MEASURES}}


def references() -> list[dict[str, Any]]:
    """Return what P(Y | X), drawn towards its mean by some share, has: the best possible and a constant."""
    return list(_results()["references"])


def synthetic_summary() -> list[dict[str, Any]]:
    """Return a row for each penalty and lambda, beside the published run and one of its random numbers."""
    results = _results()
    known = {float(row["lam"]): row for row in results["published"]}
    rows = []
    for penalty in ("published", "default"):
        for lam in LAMS:
            key = {"penalty": penalty, "lam": lam}
            row = _row(_of(results["runs"], part="synthetic", **key), **key)
            if penalty == "published":
                (stream,) = _of(results["runs"], part="stream", lam=lam)
                row["same_random_numbers"] = {name: stream[name] for name in MEASURES}
                if lam in known:
                    names = {"accuracy": "accuracy", "gdp_grid": "gdp", "hsic": "hsic"}
                    row["paper"] = {ours: float(known[lam][theirs]) for ours, theirs in names.items()}
            rows.append(row)
    return rows


def kernels_summary() -> list[dict[str, Any]]:
    """Return a row for each network, penalty, lambda and pair of kernels, the paper's beside its lambda."""
    cells = [{"kernel_z": of_z, "kernel_s": of_s} for of_z, of_s in PAPER_KERNELS]
    return _ablation(
        cells, {"width": 8}, lambda cell: PAPER_KERNELS.get((cell["kernel_z"], cell["kernel_s"]))
    )


def dimension_summary() -> list[dict[str, Any]]:
    """Return a row for each network, penalty, lambda and width of Z, the paper's beside its lambda."""
    same = {"kernel_z": "Gaussian", "kernel_s": "Gaussian"}
    cells = [{"width": width} for width in WIDTHS]
    return _ablation(cells, same, lambda cell: PAPER_DIMENSION.get(cell["width"]))


def _ablation(
    cells: list[dict[str, Any]],
    same: dict[str, Any],
    paper: Callable[[dict[str, Any]], tuple[float, float] | None],
) -> list[dict[str, Any]]:
    runs = _of(_results()["runs"], part="ablation")
    rows = []
    for network, penalty in ARMS:
        for lam in reversed(ABLATION_LAMS):
            for cell in cells:
                key = {"network": network, "penalty": penalty, "lam": lam, **cell}
                row = _row(_of(runs, **same, **key), **key)
                printed = paper(cell)
                if penalty == "published" and lam == 5.0 and printed is not None:
                    row["paper"] = dict(zip(("accuracy", "gdp_grid"), printed, strict=True))
                rows.append(row)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print means with deviations over seeds, the paper's numbers beside what they are about."""
    names = [
        name for name in ("network", "penalty", "lam", "kernel_z", "kernel_s", "width") if name in rows[0]
    ]
    beside = ("accuracy", "gdp_grid")
    plain = (
        "base_rate",
        "accuracy_law",
        "same_label",
        "loss_kept",
        "gdp_population",
        "r2_s_linear",
        "spread",
    )
    head = [f"{name:>9s}" for name in names]
    head += [f"{name:>13s}   paper" for name in beside] + [f"{name:>14s}" for name in plain]
    print(" ".join(head))
    for row in rows:
        parts = [f"{row[name]:>9g}" if name in ("lam", "width") else f"{row[name]:>9s}" for name in names]
        for name in beside:
            paper = row.get("paper", {}).get(name)
            parts.append(f"{_spelled(row[name])} {'' if paper is None else format(paper, '.4f'):>7s}")
        print(" ".join([*parts, *(f"{_spelled(row[name]):>14s}" for name in plain)]))


def _spelled(cell: dict[str, float]) -> str:
    return f"{cell['mean']:.4f} ({cell['sd']:.3f})"
