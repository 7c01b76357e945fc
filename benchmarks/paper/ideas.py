"""Ideas for a representation from which S is not recovered, tried on development data only (resumable).

None of the rows is of the five datasets of the paper's protocol: Adult's test file, ACS Income of Colorado
and Nebraska, MEPS of 2016. A network of the paper (50 hidden units, SELU) is trained by its own short loop,
so that an idea is a few lines here; what is kept goes into the package.
"""

import argparse
import math
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from torch import Tensor, nn

from benchmarks._protocol import Array, output_of
from benchmarks._record import Runs, write_section
from benchmarks._simulate import Task, opened, spread
from benchmarks.paper import _judges
from benchmarks.paper._matched import least_performance
from benchmarks.paper.representation import STRENGTHS as CHOSEN
from benchmarks.paper.representation import Setting, ours
from benchmarks.paper.reproduction._text import markdown
from frhsic import GDP, HSIC
from frhsic.data import Sensitive
from frhsic.datasets import fetch_acs_income, fetch_adult, fetch_meps, make_preprocessor, paper_split
from frhsic.dependence import Adversary, BinnedMMD, Dependence, RecoveredVariance
from frhsic.kernels import Gaussian

NAME = "ideas.json"
MOST = 16_000
WIDTHS = (8, 50)
STRENGTHS = (0.0, 0.1, 0.2, 0.4, 0.8)
SHOWN = ("r2_max", "gdp", "use")
FAST = ("ridge", "MLP", "boosted", "forest")
USES = {
    "adult.test": ["hours-per-week", "education-num"],
    "acs.co": ["WKHP", "SCHL"],
    "acs.ne": ["WKHP", "SCHL"],
    "meps.2016": [],
}


@dataclass(frozen=True)
class Idea:
    """What is changed, and why it might work."""

    reason: str
    measure: str = "recovered"
    n_features: int = 128
    ridge: float = 0.01
    batch: int = 2_048
    epochs: int = 60
    score: float = 0.0  # of recovered variance of the probability, beside the penalty on Z
    means: float = 0.0  # of squared gaps of the mean probability in ten bins of S
    noise: float = 0.0  # of the Gaussian channel, for |z| <= 1
    inner: int = 0  # columns between which Z has its only links to X
    rebuild: float = 0.0  # of the share of the variance of X that a decoder misses
    knows_s: bool = False  # whether the decoder is given S
    alike: bool = False  # whether each column of X counts alike in it, not by its variance
    falls: bool = False  # whether the learning rate does, to zero
    erase: bool = False
    functions: int = 0  # random functions of Z that are released in its place
    expected_s: float = 0.0  # share of functions of S in the target that is their regression on X
    expected_y: float = 0.0  # the same of y


CHANNEL = 0.05
MEANS = Idea(
    "a mean gap costs less accuracy than all of the score",
    noise=CHANNEL,
    rebuild=0.5,
    knows_s=True,
    alike=True,
    means=0.4,
)
IDEAS = {
    "HSIC": Idea("the paper's, on whitened Z", measure="HSIC"),
    "recovered": Idea("penalise what a regression recovers on rows left out"),
    "halves": Idea("the same from one half of a batch on the other, cut at zero", measure="halves"),
    "more features": Idea("finer functions of Z", n_features=384),
    "ridge of 0.1": Idea("fewer directions fitted by chance", ridge=0.1),
    "ridge of 0.001": Idea("smaller directions seen", ridge=0.001),
    "running moments": Idea("a regression on the last ten batches, not on one", measure="running"),
    "large batches": Idea("less noise in second moments", batch=6_144, epochs=180),
    "thresholds": Idea("functions like those of trees", measure="thresholds"),
    "adversaries": Idea("three networks learn while Z does", measure="adversaries"),
    "erasure": Idea("no penalty; the linear part of S is erased after training", measure="none", erase=True),
    "kernel erasure": Idea(
        "the same of 128 random functions of Z, released in its place",
        measure="none",
        erase=True,
        functions=128,
    ),
    "channel": Idea("noise buries directions of small variance", noise=CHANNEL),
    "narrow inside": Idea("fewer directions to hide in", inner=4),
    "channel, rebuild X": Idea("use, which the channel takes away", noise=CHANNEL, rebuild=0.5),
    "channel, rebuild X given S": Idea(
        "the decoder need not learn S from Z", noise=CHANNEL, rebuild=0.5, knows_s=True
    ),
    "columns alike": Idea(
        "no column of X is lost for its scale", noise=CHANNEL, rebuild=0.5, knows_s=True, alike=True
    ),
    "and the probability": Idea(
        "the head that is trained along", noise=CHANNEL, rebuild=0.5, knows_s=True, alike=True, score=0.2
    ),
    "and its means": MEANS,
    "falling learning rate": replace(
        MEANS, reason="new random functions at each step keep the last steps moving", falls=True
    ),
    "expected S": replace(
        MEANS,
        reason="given X, S says more than in one row: less noise in the regression on Z, with the same limit",
        expected_s=0.7,
    ),
    "expected labels": replace(
        MEANS,
        reason="boosted trees know more of y than its rows do: accuracy to spend",
        expected_y=1.0,
    ),
    "chosen": Idea(
        "all of these but the last three in the package, a penalty at one step of eight", measure="chosen"
    ),
}


@dataclass(frozen=True, eq=False)
class Rows:
    """A split of development data; x as the network sees it, the targets of use in their own units."""

    x: Tensor
    y: Tensor
    s: Array
    uses: Array
    x_test: Tensor
    y_test: NDArray[Any]
    s_test: Array
    uses_test: Array


@cache
def rows_of(name: str, repeat: int) -> Rows:
    """Return a split of at most 16,000 rows."""
    if name == "adult.test":
        bunch, column = fetch_adult(subset="test", missing="category"), "age"
    elif name == "meps.2016":
        bunch, column = fetch_meps(year=2016, features="paper", missing="drop"), "AGE"
    else:
        bunch, column = fetch_acs_income(states=name[-2:].upper()), "AGEP"
    kept = np.sort(np.random.default_rng(0).permutation(len(bunch.target))[:MOST])
    frame, y = bunch.data.iloc[kept], np.asarray(bunch.target, dtype=np.int64)[kept]
    s = bunch.sensitive_features[column].to_numpy(np.float64)[kept]
    uses = USES[name] or [one for one in frame if frame[one].nunique() > 2]
    targets = np.column_stack([pd.factorize(frame[one], sort=True)[0] for one in uses]).astype(np.float64)
    train, test = paper_split(len(y), repeat=repeat)
    preprocessor = make_preprocessor(bunch).fit(frame.iloc[train])
    x, x_test = (
        torch.tensor(preprocessor.transform(frame.iloc[part]), dtype=torch.float32) for part in (train, test)
    )
    label = torch.tensor(y[train], dtype=torch.float32)
    return Rows(x, label, s[train], targets[train], x_test, y[test], s[test], targets[test])


class Net(nn.Module):
    """The encoder with its channel, a linear head, and a decoder."""

    def __init__(self, columns: int, width: int, idea: Idea) -> None:
        super().__init__()
        inner = idea.inner or width
        self.noise = idea.noise
        self.encoder = nn.Sequential(
            nn.Linear(columns, 50),
            nn.SELU(),
            nn.Linear(50, inner),
            nn.Linear(inner, width) if idea.inner else nn.Identity(),
        )
        self.head = nn.Linear(width, 1)
        self.decoder = nn.Linear(width + (5 if idea.knows_s else 0), columns)

    def represent(self, x: Tensor) -> Tensor:
        """Return Z: within the unit ball, plus noise, where there is a channel."""
        z = self.encoder(x)
        if not self.noise:
            return z
        length = z.norm(dim=1, keepdim=True).clamp_min(1e-9)
        return z * torch.tanh(length) / length + self.noise * torch.randn_like(z)


class Thresholds(RecoveredVariance):
    """Recovered variance from steep sigmoids of one or two columns of whitened Z."""

    def _features(self, z: Tensor, w: Tensor | None) -> Tensor:
        x = super()._features(z, w)[..., : z.shape[-1]]
        d, m = x.shape[-1], self.n_features
        mask = torch.zeros(d, m).scatter_(0, torch.randint(d, (2, m)), 1.0)
        along = x @ (mask * torch.randn(d, m))
        return torch.cat((x, torch.sigmoid(8.0 * (along / along.std(dim=0) - torch.randn(m)))), dim=1)


class Halves(RecoveredVariance):
    """Coefficients of one half of the rows, judged on the other, and cut at zero."""

    def _recovered(self, F: Tensor, T: Tensor, w: Tensor) -> Tensor:
        F, T = F - w @ F, T - w @ T
        found = F.new_zeros(T.shape[1])
        for own, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
            moments = F[own].T @ F[own] / len(F[own])
            solved = torch.linalg.solve(
                moments + self.ridge * torch.eye(len(moments)), F[own].T @ T[own] / len(F[own])
            )
            P = F[other] @ solved
            found = found + 0.5 * (2.0 * T[other] * P - P**2).mean(dim=0)
        return found.clamp_min(0.0).sum() / T.square().sum(dim=1).mean()


class Running(RecoveredVariance):
    """Coefficients of second moments that are averaged over batches, judged on the newest batch."""

    moments: Tensor | None = None

    def _recovered(self, F: Tensor, T: Tensor, w: Tensor) -> Tensor:
        F, T = F - w @ F, T - w @ T
        both = torch.cat((F, T), dim=1).detach()
        own = both.T @ both / len(both)
        found = own if self.moments is None else self.moments  # of the batches before
        self.moments = 0.9 * found + 0.1 * own
        m = F.shape[1]
        solved = torch.linalg.solve(found[:m, :m] + self.ridge * torch.eye(m), found[:m, m:])
        return 1.0 - (T - F @ solved).square().sum(dim=1).mean() / T.square().sum(dim=1).mean()


class Expected(RecoveredVariance):
    """Functions of S are those of a table, of which s is the row."""

    table: Tensor

    def targets(self, s: Sensitive, w: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return rows of the table."""
        return self.table[s.values[:, 0].long()]


@cache
def expected(name: str, repeat: int) -> tuple[Tensor, Tensor]:
    """Return five functions of S and y as boosted trees predict them from X, each row by trees without it."""
    rows = rows_of(name, repeat)
    options: dict[str, Any] = {"learning_rate": 0.05, "min_samples_leaf": 50, "random_state": 0}
    of_s, of_y = HistGradientBoostingRegressor(**options), HistGradientBoostingClassifier(**options)
    x = rows.x.numpy()
    T = np.column_stack([cross_val_predict(of_s, x, wave, cv=5) for wave in waves_of(rows.s).numpy().T])
    p = cross_val_predict(of_y, x, rows.y.numpy(), cv=5, method="predict_proba")[:, 1]
    return torch.tensor(T, dtype=torch.float32), torch.tensor(p, dtype=torch.float32)


def waves_of(s: Array) -> Tensor:
    """Return five cosines of the ranks of s."""
    ranks = torch.tensor(pd.Series(s).rank(pct=True).to_numpy(), dtype=torch.float32)
    return math.sqrt(2.0) * torch.cos(math.pi * ranks[:, None] * torch.arange(1, 6))


def measure_of(idea: Idea) -> Dependence | None:
    """Return the penalty on Z."""
    options: dict[str, Any] = {"ridge": idea.ridge, "seed": None}
    kinds: dict[str, Any] = {
        "none": lambda: None,
        "adversaries": lambda: None,
        "HSIC": lambda: HSIC(
            Gaussian("scale-free", whiten=True), Gaussian("scale-free"), estimator="unbiased", normalized=True
        ),
        "recovered": lambda: RecoveredVariance(idea.n_features, **options),
        "running": lambda: Running(idea.n_features, ridge=idea.ridge, seed=0),
        "halves": lambda: Halves(idea.n_features, **options),
        "thresholds": lambda: Thresholds(idea.n_features, **options),
    }
    found: Dependence | None = kinds[idea.measure]()
    return found


def train(
    rows: Rows, idea: Idea, width: int, strength: float, seed: int, teacher: tuple[Tensor, Tensor] | None
) -> Net:
    """Train a network; penalties grow over the first half of the epochs."""
    torch.manual_seed(seed)
    net = Net(rows.x.shape[1], width, idea)
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    measure, of_score, of_means = measure_of(idea), RecoveredVariance(16, seed=None), BinnedMMD(10)
    s = torch.tensor(rows.s, dtype=torch.float32)
    waves, y, seen_s, share = waves_of(rows.s), rows.y, s, 1.0
    if idea.expected_s and measure is not None and teacher is not None:
        mixed = torch.lerp(waves, teacher[0], idea.expected_s)
        measure = Expected(idea.n_features, ridge=idea.ridge, seed=None)
        measure.table, seen_s = mixed, torch.arange(len(mixed), dtype=torch.float32)
        share = float(mixed.var(dim=0).sum() / waves.var(dim=0).sum())  # of the variance to be recovered
    if idea.expected_y and teacher is not None:
        y = torch.lerp(rows.y, teacher[1], idea.expected_y)
    foes: list[Adversary] = []
    if idea.measure == "adversaries" and strength:
        start = torch.zeros(8, width), waves[:8]
        foes = [Adversary((64, 64)).calibrate(*start, torch.Generator().manual_seed(k)) for k in range(3)]
    foe = torch.optim.Adam([p for one in foes for p in one.parameters()], lr=3e-3) if foes else None
    total, n = rows.x.var(dim=0).sum(), len(rows.x)
    unit = rows.x.std(dim=0).clamp_min(0.01) if idea.alike else torch.ones(rows.x.shape[1])
    total = (rows.x / unit).var(dim=0).sum() if idea.alike else total
    batch = min(idea.batch, n)
    for epoch in range(idea.epochs):
        ramp = min(1.0, 2.0 * (epoch + 1) / idea.epochs)
        factor = 5.0 * ramp * strength
        if idea.falls:
            optimiser.param_groups[0]["lr"] = 1.5e-3 * (1.0 + math.cos(math.pi * epoch / idea.epochs))
        for own in torch.randperm(n)[: n - n % batch].split(batch):
            z = net.represent(rows.x[own])
            logit = net.head(z)[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(logit, y[own])
            if idea.rebuild:
                seen = torch.cat((z, waves[own]), dim=1) if idea.knows_s else z
                missed = ((net.decoder(seen) - rows.x[own]) / unit).square().sum(dim=1).mean()
                loss = loss + idea.rebuild * missed / total
            if measure is not None and strength:
                loss = loss + factor * share * measure(z, seen_s[own])
            if foe is not None:
                white = z @ _whitening(z)
                for _ in range(3):
                    foe.zero_grad()
                    (-sum(one(white.detach(), waves[own]) for one in foes)).backward()
                    foe.step()
                loss = loss + factor * torch.stack([one(white, waves[own]) for one in foes]).max() / 5.0
            if idea.score and strength:
                loss = loss + 5.0 * ramp * idea.score * of_score(torch.sigmoid(logit)[:, None], s[own])
            if idea.means and strength:
                loss = loss + ramp * idea.means * of_means(torch.sigmoid(logit)[:, None], s[own])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimiser.step()
    return net


def _whitening(z: Tensor) -> Tensor:
    centred = (z - z.mean(dim=0)).detach()
    eigen, vectors = torch.linalg.eigh(centred.T @ centred / len(z))
    return vectors / eigen.clamp_min(1e-6).sqrt()


def work(task: Task) -> Task:
    """Train and judge one model."""
    idea = replace(IDEAS.get(task["idea"], Idea("to compare with", measure="none")), epochs=task["epochs"])
    rows = rows_of(task["dataset"], task["split"])
    if idea.measure == "chosen":
        z, z_test, logit = chosen(rows, task)
    else:
        taught = idea.expected_s or idea.expected_y
        teacher = expected(task["dataset"], task["split"]) if taught else None
        net = train(rows, idea, task["width"], task["strength"], task["split"], teacher)
        torch.manual_seed(1_000 + task["split"])
        with torch.no_grad():
            z, z_test = (net.represent(x).double().numpy() for x in (rows.x, rows.x_test))
            weight, bias = net.head.weight.double().numpy()[0], float(net.head.bias)
        if idea.functions:
            z, z_test = functions_of(z, z_test, idea.functions)
        if idea.erase:
            z, z_test = erased(z, rows.s, z_test)
            head = LogisticRegression(max_iter=1_000).fit(z, rows.y.numpy())
            weight, bias = head.coef_[0], float(head.intercept_[0])
        logit = z_test @ weight + bias
    low, high = rows.s.min(), rows.s.max()
    score, s_unit = 1.0 / (1.0 + np.exp(-logit)), (rows.s_test - low) / (high - low)
    found = _judges.recovered(z, rows.s, z_test, rows.s_test, FAST)
    return {
        "found": {
            "accuracy": float(np.mean((logit > 0) == rows.y_test)),
            "base": float(max(rows.y_test.mean(), 1.0 - rows.y_test.mean())),
            "r2_max": max(found.values()),
            "gdp": GDP(0.1)(torch.from_numpy(score), torch.from_numpy(s_unit)).item(),
            "use": _judges.use(z, rows.uses, z_test, rows.uses_test),
            **{name: round(value, 4) for name, value in found.items()},
        }
    }


def chosen(rows: Rows, task: Task) -> tuple[Array, Array, Array]:
    """Return Z of both parts and logits, by the estimator that ``representation`` judges."""
    more: dict[str, Any] = {"rows": len(rows.s), "regression": False, "seed": task["split"]}
    model = ours(task["width"], Setting(task["strength"]), **more)
    model.fit(rows.x.numpy(), rows.y.numpy().astype(int), sensitive_features=rows.s)
    x, x_test = rows.x.numpy(), rows.x_test.numpy()
    logit = output_of(model, x_test, regression=False)
    return model.transform(x), model.transform(x_test), logit


def functions_of(z: Array, z_test: Array, count: int) -> tuple[Array, Array]:
    """Return whitened Z and random cosines of it, by the scales of the training rows."""
    train, test = torch.from_numpy(z), torch.from_numpy(z_test)
    measure = RecoveredVariance(count).calibrate(train, torch.arange(len(z)).double(), freeze=True)
    return measure._features(train, None).numpy(), measure._features(test, None).numpy()


def erased(z: Array, s: Array, z_test: Array) -> tuple[Array, Array]:
    """Return Z without the directions along which it is correlated with five functions of S (LEACE)."""
    T = waves_of(s).double().numpy()
    centre = z.mean(axis=0)
    x = z - centre
    eigen, vectors = np.linalg.eigh(x.T @ x / len(x))
    kept = eigen > 1e-9 * eigen[-1]
    white = vectors[:, kept] / np.sqrt(eigen[kept])
    back = (vectors[:, kept] * np.sqrt(eigen[kept])).T
    directions = np.linalg.qr((x @ white).T @ (T - T.mean(axis=0)))[0]
    rest = white @ (np.eye(kept.sum()) - directions @ directions.T) @ back
    return (z - centre) @ rest + centre, (z_test - centre) @ rest + centre


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--quick", action="store_true", help="few epochs, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("--datasets", nargs="*", default=["adult.test", "acs.co"], choices=USES)
    parser.add_argument("--ideas", nargs="*", default=list(IDEAS), choices=IDEAS)
    parser.add_argument("--widths", nargs="*", type=int, default=list(WIDTHS))


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, and print the table."""
    ideas = {name: asdict(idea) for name, idea in IDEAS.items()}
    runs = opened(NAME, fresh=arguments.fresh, quick=arguments.quick, ideas=ideas)
    strengths = STRENGTHS[1:2] if arguments.quick else STRENGTHS[1:]
    cells = [
        {"dataset": dataset, "width": width, "split": 0}
        for dataset in arguments.datasets
        for width in arguments.widths
    ]
    tasks = []
    for name, idea in {"none": Idea("", measure="none"), **IDEAS}.items():
        if name in ("none", *arguments.ideas):
            tried = {"none": STRENGTHS[:1], "chosen": CHOSEN}.get(idea.measure, strengths)
            common = {"idea": name, "epochs": 2 if arguments.quick else idea.epochs}
            tasks += [{**cell, **common, "strength": strength} for cell in cells for strength in tried]
    if not arguments.table:
        spread(runs, tasks, work)
        runs.write()
    print(table(runs))
    if not arguments.quick:
        write_section("evidence/representation.md", "ideas", table(runs), NAME)


def table(runs: Runs) -> str:
    """Return what each idea leaves of R^2, GDP and use, by its model of least R^2 that keeps the accuracy."""
    free = {(one["dataset"], one["width"]): one["found"] for one in runs.runs if one["idea"] == "none"}
    header = ["idea", "reason", *(f"{dataset}, {width} columns" for dataset, width in free)]
    plain = [" / ".join(f"{one[key]:.3f}" for key in SHOWN) for one in free.values()]
    lines = [["none", "to compare with: R^2, GDP, use", *plain]]
    for name, idea in IDEAS.items():
        own = [one for one in runs.runs if one["idea"] == name]
        if own:
            lines.append([name, idea.reason, *(_outcome(own, *cell, base) for cell, base in free.items())])
    return markdown(header, lines, left=(0, 1))


def _outcome(runs: list[dict[str, Any]], dataset: str, width: int, free: dict[str, float]) -> str:
    least = least_performance(free["accuracy"], free["base"], regression=False)
    own = [one["found"] for one in runs if (one["dataset"], one["width"]) == (dataset, width)]
    kept = [found for found in own if found["accuracy"] >= least]
    if not kept:
        return "accuracy not kept" if own else ""
    best = min(kept, key=lambda found: found["r2_max"])
    return " / ".join(f"{100.0 * max(best[key], 0.0) / free[key]:.0f} %" for key in SHOWN)
