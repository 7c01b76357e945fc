"""How often an audit claims what is false, on tables of which no, some or most attributes matter.

Scores are normal, binary or skewed; attributes are an integer age with a step at 65, two labels, three labels
of which one has the distribution of all rows, a skewed income, and a number along which, for normal scores,
only the spread changes. The mean score along each attribute is known exactly. A claim is false if the score
does not depend on the attribute, if its mean is not on the claimed side of the overall mean, or if the
distribution at a claimed label is the one overall. Claims and sentences are those of ``audit``; the sentences
are read for contradictions. An audit of five attributes takes about 7 s of one core, of one 0.8 s.

The second table: how often ``equivalence_test`` shows a dependence to be below a tolerance that it just has,
when it sits in a small group.
"""

import argparse
import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks._record import write_section
from benchmarks._simulate import Array, Task, binomial_interval, chunks, draws_of, most, opened, rng, spread
from frhsic import HSIC, audit
from frhsic.auditing import Audit, Claim, Column
from frhsic.inference import Curve, equivalence_test
from frhsic.kernels import Delta, Gaussian

ALPHA, ROWS, DRAWS = 0.05, 300, 1_000
CELLS = ((1, 0), (1, 1), (5, 0), (5, 1), (5, 3))  # attributes, and how many of them matter
NAMES = ("age", "sex", "zone", "income", "x")
SCORES = ("normal", "binary", "skewed")
SIZE = {"normal": 0.8, "binary": 0.2, "skewed": 0.5}  # of an effect, in units of the score
SMALL = tuple((n, share, 2.0) for n in (300, 400) for share in (0.03, 0.06))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--quick", action="store_true", help="few draws, results in a temporary file")
    parser.add_argument("--fresh", action="store_true", help="forget what is there")
    parser.add_argument("--table", action="store_true", help="only write the tables of the results")


# ---- tables ------------------------------------------------------------------------------------------------


def attributes(g: np.random.Generator, n: int) -> dict[str, Any]:
    """Return the sensitive columns of n rows, independent of one another."""
    return {
        "age": g.integers(18, 90, n),
        "sex": g.choice(["f", "m"], n),
        "zone": g.choice(["a", "b", "c"], n, p=[0.3, 0.3, 0.4]),
        "income": g.lognormal(size=n),
        "x": g.standard_normal(n),
    }


def gap(name: str, score: str, at: Any) -> Array:
    """Return the mean effect at values of an attribute, less its overall mean, in units of its size."""
    return np.asarray(_gap(name, score, at), dtype=np.float64)


def _gap(name: str, score: str, at: Any) -> Any:
    if name == "age":
        return (np.asarray(at) >= 65) - 25.0 / 72.0
    if name == "sex":
        return (np.asarray(at) == "m") - 0.5
    if name == "zone":
        return (np.asarray(at) == "a") * 1.0 - (np.asarray(at) == "b") * 1.0
    if name == "income":
        return norm.cdf(np.log(np.asarray(at, dtype=float))) - 0.5
    if score == "normal":
        return np.zeros(np.shape(at))  # only the spread changes
    return (np.abs(np.asarray(at, dtype=float)) > 1.0) - 2.0 * norm.sf(1.0)


def scores(g: np.random.Generator, s: dict[str, Any], matter: Sequence[str], kind: str) -> Array:
    """Return scores whose mean is a constant plus the effects of the attributes that matter."""
    n = len(s["age"])
    effect = np.zeros(n)
    for name in matter:
        effect += gap(name, kind, s[name])
        if name == "zone":  # the third label has the effects of the other two, at random: the law of all rows
            effect += (s["zone"] == "c") * g.choice([-1.0, 1.0], n)
    size = SIZE[kind] / max(1.0, math.sqrt(len(matter)))
    if kind == "normal":
        noise = g.standard_normal(n) * (np.where(np.abs(s["x"]) > 1.0, 2.0, 0.7) if "x" in matter else 1.0)
        return size * effect + noise
    if kind == "binary":
        return (g.random(n) < np.clip(0.5 + size * effect, 0.02, 0.98)).astype(float)
    return (1.5 + size * effect) * g.exponential(size=n)


def which_matter(names: Sequence[str], count: int, draw: int) -> list[str]:
    """Return the attributes that matter in a draw: each in turn."""
    return [names[(draw + j) % len(names)] for j in range(count)]


# ---- what is true of an audit -----------------------------------------------------------------------------


@cache
def everybody() -> dict[str, Any]:
    """Return many rows: means over them are those of the population."""
    return attributes(rng("claims", "population"), 400_000)


def mean_gap(curve: Curve, i: int, name: str, score: str) -> float:
    """Return the mean gap of the population at a value, or within a range, of a curve."""
    s = everybody()[name]
    inside = s[(s >= curve.start[i]) & (s <= curve.stop[i])]
    return float(gap(name, score, inside).mean()) if len(inside) else 0.0


def false_claims(found: Audit, matter: Sequence[str], score: str) -> list[str]:
    """Return which kinds of claims are false."""
    wrong = []
    for claim in found.claims:
        if not set(claim.attributes) & set(matter):
            wrong.append("joint" if len(claim.attributes) > 1 else f"null {claim.says}")
        elif len(claim.attributes) == 1 and claim.says != "depends":
            place = [column.name for column in found.columns].index(claim.attributes[0])
            if _wrong_place(claim, found.columns[place], found.attributes[place].curve, score):
                wrong.append(claim.says)
    return wrong


def _wrong_place(claim: Claim, column: Column, curve: Curve | None, score: str) -> bool:
    name = column.name
    if column.kind == "categorical":
        at = [column.labels[int(point)] for point in claim.points]
        if claim.says == "differs":
            return name == "zone" and "c" in at
        return any(float(gap(name, score, label)) * (1 if claim.says == "above" else -1) <= 0 for label in at)
    if claim.says == "differs" or curve is None:
        return False  # along numbers the distribution differs from the one overall everywhere
    sign = 1.0 if claim.says == "above" else -1.0
    rows = [curve.points.index(point) for point in claim.points]
    return any(sign * mean_gap(curve, i, name, score) <= 0 for i in rows)


def contradicts_itself(found: Audit) -> bool:
    """Read the sentences: a place where no dependence is shown, or one attribute without all together."""
    text = found.sentences()
    shown = []
    for one, paragraph in zip(found.attributes, text, strict=False):
        depends = f"The score depends on {one.name} (" in paragraph
        unseen = f"These rows do not show that the score depends on {one.name} (" in paragraph
        where = bool(re.search(r"mean score is (above|below)|distribution differs", paragraph))
        shown.append(depends)
        if depends == unseen or (where and not depends):
            return True
    joint = any(line.startswith("Jointly: The score depends on") for line in text)
    return len(found.attributes) > 1 and any(shown) and not joint


# ---- tables of results -------------------------------------------------------------------------------------


def tasks_of(draws: int, quick: bool) -> list[Task]:
    """Return the chunks of both tables; a command that is cut short has seen every cell."""
    tasks = []
    for count, matter in CELLS:
        cell = {"table": "claims", "attributes": count, "dependent": matter}
        tasks += chunks(cell, 6, 6) if quick else chunks(cell, draws, 50)
    for n, share, shift in SMALL:
        cell = {"table": "equivalence", "n": n, "share": share, "shift": shift}
        tasks += chunks(cell, 20, 20) if quick else chunks(cell, 2 * draws, 500)
    return sorted(tasks, key=lambda task: task["first"])


def work(task: Task) -> Task:
    """Return the counts of a chunk, in a worker."""
    return _claims(task) if task["table"] == "claims" else _equivalence(task)


def _claims(task: Task) -> Task:
    count, dependent = task["attributes"], task["dependent"]
    tally: dict[str, int] = {"false": 0, "contradicts": 0, "claims any": 0, "places": 0}
    for draw in draws_of(task):
        g = rng("claims", count, dependent, draw)
        s = attributes(g, ROWS)
        names = list(NAMES) if count == len(NAMES) else [NAMES[draw % len(NAMES)]]
        matter, score = which_matter(names, dependent, draw), SCORES[(draw // len(NAMES)) % len(SCORES)]
        f = scores(g, s, matter, score)
        found = audit(
            f,
            sensitive_features={name: s[name] for name in names},
            confidence_level=1.0 - ALPHA,
            random_state=int(g.integers(2**31)),
        )
        wrong = false_claims(found, matter, score)
        tally["false"] += bool(wrong)
        tally["contradicts"] += contradicts_itself(found)
        tally["claims any"] += bool(found.claims)
        tally["places"] += any(claim.says != "depends" for claim in found.claims)
        for kind in set(wrong):
            tally[f"false: {kind}"] = tally.get(f"false: {kind}", 0) + 1
    return {"tally": tally}


def _equivalence(task: Task) -> Task:
    n, share, shift = task["n"], task["share"], task["shift"]
    measure = HSIC(Gaussian(1.0), Delta(), estimator="unbiased")
    # Delta on two labels: HSIC = 2 p^2 (1 - p)^2 MMD^2; of normal laws, MMD^2 in closed form.
    tolerance = 2 * (share * (1 - share)) ** 2 * 2 / math.sqrt(3) * (1 - math.exp(-(shift**2) / 6))
    below = 0
    for draw in draws_of(task):
        g = rng("equivalence", n, share, shift, draw)
        few = g.random(n) < share
        while few.sum() < 2:
            few = g.random(n) < share
        z = g.standard_normal(n) + shift * few
        s = np.where(few, "few", "many")
        seed = int(g.integers(2**31))
        below += equivalence_test(
            z, s, tolerance=tolerance, dependence=measure, n_draws=999, random_state=seed
        ).below
    return {"tally": {"below": below}}


def summarise(runs: list[Task]) -> list[dict[str, Any]]:
    """Return a row for each cell."""
    sums: dict[tuple[tuple[str, Any], ...], dict[str, int]] = {}
    for run in runs:
        keys = ("table", "attributes", "dependent", "n", "share", "shift")
        cell = sums.setdefault(tuple((key, run[key]) for key in keys if key in run), {"draws": 0})
        cell["draws"] += run["draws"]
        for field, value in run["tally"].items():
            cell[field] = cell.get(field, 0) + value
    rows = []
    for key, cell in sorted(sums.items(), key=str):
        draws, name = cell["draws"], "false" if ("table", "claims") in key else "below"
        low, high = binomial_interval(cell[name], draws)
        rows.append(
            {
                **dict(key),
                **cell,
                "rate": cell[name] / draws,
                "rate_95": (low, high),
                "above": cell[name] / draws > most(ALPHA, draws, len(sums)),
            }
        )
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Simulate what is missing, print the tables and write benchmarks/results/claims.json."""
    runs = opened("claims.json", fresh=arguments.fresh, quick=arguments.quick, alpha=ALPHA, rows=ROWS)
    if not arguments.table:
        spread(runs, tasks_of(arguments.draws, arguments.quick), work)
        print(f"written to {runs.write(results=summarise(runs.runs)).name}")
    text = tables(summarise(runs.runs))
    print(text)
    if not arguments.quick:
        write_section("evidence/coverage.md", "claims", text, "claims.json")


def tables(rows: list[dict[str, Any]]) -> str:
    """Return both tables in Markdown."""
    lines = [
        "| attributes | of which matter | audits | with a false claim | 95 % limits | contradictions | "
        "claim something | name a place |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if row["table"] == "claims":
            low, high = row["rate_95"]
            rate = f"{row['rate']:.3f}{' above' if row['above'] else ''}"
            any_claim, place = (row[name] / row["draws"] for name in ("claims any", "places"))
            lines.append(
                f"| {row['attributes']} | {row['dependent']} | {row['draws']:,} | {rate} | {low:.3f} to "
                f"{high:.3f} | {row['contradicts']} | {any_claim:.2f} | {place:.2f} |"
            )
    lines += [
        "",
        "The equivalence test when all dependence is in a small group, at the true dependence as tolerance:",
        "",
        "| n | share of the group | samples | called below | 95 % limits |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if row["table"] == "equivalence":
            low, high = row["rate_95"]
            lines.append(
                f"| {row['n']} | {row['share']} | {row['draws']:,} | {row['rate']:.3f} | {low:.3f} to "
                f"{high:.3f} |"
            )
    return "\n".join(lines)
