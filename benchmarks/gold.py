"""Twelve gold cases of an audit: their numbers today, and what a change of the code changes in them.

Without options the numbers are written; ``--compare`` computes them with the present code and prints those
that differ. Cases are seeded, and the digest of their data tells a change of the data from one of the code.
"""

import argparse
import hashlib
import importlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from scipy import special

from benchmarks._record import RESULTS, Runs
from benchmarks._simulate import SEED, Array, rng
from frhsic import audit
from frhsic.auditing import Attribute, Audit, audit_source
from frhsic.data import to_sensitive
from frhsic.datasets import fetch_adult, make_preprocessor
from frhsic.dependence import GDP, HSIC, ScoreGap
from frhsic.inference import independence_test
from frhsic.kernels import Gaussian
from frhsic.sources import open_source

NAME = "gold.json"
ROWS = 5_000
# Each value of an attribute is a cell of its own in the plug-ins where there are so many at most.
MOST_VALUES = 128
# Digits that are kept of a number, and of simulated data: the last bits differ between processors.
DIGITS, DECIMALS = 9, 9
# Below so much of the old number a difference is not printed, nor below what rounding makes of a zero.
TOLERANCE, ROUNDING = 1e-3, 1e-12
# Not compared: other programs run beside.
SECONDS = "cpu_seconds"
# The wave: samples, rows, permutations, and its size in standard deviations of the noise.
WAVES, WAVE_ROWS, PERMUTATIONS, WAVE = 60, 4_000, 199, 0.13

Value: TypeAlias = float | str | list[float]
Data: TypeAlias = dict[str, Any]

# ---- data --------------------------------------------------------------------------------------------------


def few_values(g: np.random.Generator, n: int = ROWS) -> Data:
    """Ages 18 to 90, moderate dependence."""
    age = g.integers(18, 91, n)
    return {"scores": _probability(g, 0.8 * _centred(age)), "sensitive_features": {"age": age}}


def ranges(g: np.random.Generator) -> Data:
    """Log-normal incomes in cents."""
    income = _income(g.normal(size=ROWS))
    return {
        "scores": _probability(g, 0.4 * np.log(income / 36_000)),
        "sensitive_features": {"income": income},
    }


def labels(g: np.random.Generator) -> Data:
    """Eight labels, the rarest of 1 % of the rows."""
    shares = np.array([0.34, 0.22, 0.15, 0.11, 0.08, 0.06, 0.03, 0.01])
    code = g.choice(8, ROWS, p=shares)
    level = np.array([0.0, 0.3, -0.2, 0.1, 0.5, -0.4, 0.2, 0.8])[code]
    region = np.array([f"region {letter}" for letter in "ABCDEFGH"])[code]
    return {"scores": _probability(g, level), "sensitive_features": {"region": region}}


def numeric_outcome(g: np.random.Generator) -> Data:
    """Ages, a predicted number and the outcome, whose spread grows with age."""
    age = g.integers(18, 91, ROWS)
    skill = g.normal(size=ROWS)
    outcome = 30.0 + 6.0 * skill + 4.0 * _centred(age) + (3.0 + _centred(age)) * g.normal(size=ROWS)
    scores = 30.0 + 5.0 * skill + 2.0 * _centred(age) + g.normal(size=ROWS)
    return {
        "scores": scores.round(DECIMALS),
        "sensitive_features": {"age": age},
        "y_true": outcome.round(DECIMALS),
    }


def binary_outcome(g: np.random.Generator) -> Data:
    """Ages, a binary outcome, a threshold and a region, 10,000 rows."""
    age = g.integers(18, 91, 10_000)
    scores = _probability(g, 0.6 * _centred(age) - 0.5)
    rate = special.expit(special.logit(scores) + 0.4 * _centred(age))
    return {
        "scores": scores,
        "sensitive_features": {"age": age},
        "y_true": (g.random(len(age)) < rate).astype(int),
        "thresholds": (0.5,),
        "regions": {"age >= 62": "above"},
    }


def weights(g: np.random.Generator) -> Data:
    """Ages, and weights that are no function of age."""
    data = few_values(g)
    return {**data, "sample_weight": np.exp(0.5 * g.normal(size=ROWS)).round(DECIMALS)}


def groups(g: np.random.Generator) -> Data:
    """Persons with one to six rows each, of one age."""
    person = np.repeat(np.arange(ROWS), g.integers(1, 7, ROWS))[:ROWS]
    age, own = g.integers(18, 91, ROWS)[person], g.normal(size=ROWS)[person]
    scores = _probability(g, 0.6 * _centred(age) + 0.8 * own)
    return {"scores": scores, "sensitive_features": {"age": age}, "groups": person}


def joint(g: np.random.Generator) -> Data:
    """Age and income, which goes with age, together."""
    age = g.integers(18, 91, ROWS)
    income = _income(0.5 * _centred(age) + 0.9 * g.normal(size=ROWS))
    scores = _probability(g, 0.5 * _centred(age) + 0.3 * np.log(income / 36_000))
    return {"scores": scores, "sensitive_features": {"age": age, "income": income}}


def few_rows(g: np.random.Generator) -> Data:
    """Ages, 60 rows."""
    return few_values(g, 60)


def many_rows(g: np.random.Generator) -> Data:
    """Ages, 600,000 rows."""
    return few_values(g, 600_000)


def adult(g: np.random.Generator) -> Data:
    """Scores of LightGBM on the test rows of Adult, with outcome and threshold."""
    train, test = (fetch_adult(subset=subset, missing="category") for subset in ("train", "test"))
    preprocessor = make_preprocessor(train).fit(train.data)
    x, x_test = (np.asarray(preprocessor.transform(rows.data), dtype=float) for rows in (train, test))
    options = {"n_estimators": 100, "num_threads": 1, "deterministic": True, "force_row_wise": True}
    lightgbm = importlib.import_module("lightgbm")  # an extra: pip install 'frhsic[trees]'
    model = lightgbm.LGBMClassifier(random_state=int(g.integers(2**31)), verbose=-1, **options)
    model.fit(x, np.asarray(train.target))
    return {
        "scores": model.predict_proba(x_test)[:, 1].round(DECIMALS),
        "sensitive_features": {"age": test.sensitive_features["age"].to_numpy(float)},
        "y_true": np.asarray(test.target).astype(int),
        "thresholds": (0.5,),
    }


def rare(g: np.random.Generator) -> Data:
    """Scores of four levels, mostly zero, along a heavy-tailed amount with heaps."""
    raw = 1_000.0 + 300.0 * g.standard_cauchy(ROWS)
    step = np.where(g.random(ROWS) < 0.5, 100.0, 10.0)  # half of the amounts are round
    amount = np.round(raw / step) * step
    chance = 0.02 + 0.06 * (amount > 1_500.0)
    level = np.where(g.random(ROWS) < chance, g.choice([0.25, 0.5, 1.0], ROWS), 0.0)
    return {"scores": level, "sensitive_features": {"amount": amount}, "thresholds": (0.3,)}


def _centred(age: NDArray[np.int64]) -> Array:
    return (age.astype(np.float64) - 54.0) / 36.0


def _income(x: Array) -> Array:
    return np.asarray(np.exp(math.log(36_000.0) + 0.7 * x), dtype=np.float64).round(2)


def _probability(g: np.random.Generator, level: Array) -> Array:
    return np.asarray(special.expit(level + g.normal(size=len(level))), dtype=np.float64).round(DECIMALS)


CASES: dict[str, Callable[[np.random.Generator], Data]] = {
    "few values": few_values,
    "ranges": ranges,
    "labels": labels,
    "numeric outcome": numeric_outcome,
    "binary outcome": binary_outcome,
    "weights": weights,
    "groups": groups,
    "joint": joint,
    "60 rows": few_rows,
    "600,000 rows": many_rows,
    "Adult": adult,
    "rare and heavy": rare,
}

# ---- numbers -----------------------------------------------------------------------------------------------

TEST = ("statistic", "pvalue", "adjusted", "method", "exact", "n")
INTERVAL = ("estimate", "low", "high", "chance", "chance_high", "n")
CURVE = ("points", "mean", "low", "high", "mean_low", "mean_high", "overall")
AUC = ("points", "auc", "low", "high", "overall")
REGION = ("difference", "low", "high", "pvalue", "inside", "outside", "n_inside", "n_outside")
DECISION = ("rate", "lowest", "highest", "ratio", "ratio_low", "ratio_high")


def measure(name: str) -> dict[str, Any]:
    """Audit a case, and return its numbers, the digest of its data and the CPU seconds of the audit."""
    data = CASES[name](rng("gold", name))
    start = time.process_time()
    result = audit(**data, random_state=0)
    seconds = time.process_time() - start
    numbers = {"claims": claims_of(result)}
    for attribute in result.every:
        numbers[attribute.name] = numbers_of(attribute)
    for attribute in result.attributes:
        numbers[attribute.name] |= numbers_of_rows(data, attribute.name)
    return {
        "what": (CASES[name].__doc__ or "").strip().rstrip("."),
        "rows": len(data["scores"]),
        "data": digest(data),
        SECONDS: round(seconds, 2),
        "numbers": numbers,
    }


def claims_of(result: Audit) -> dict[str, float]:
    """Return at how many places each claim is made; a claim of dependence has one."""
    claims: dict[str, float] = {}
    for claim in result.claims:
        within = "" if claim.label is None else f" where the outcome is {claim.label}"
        claims[f"{claim.question}, {' and '.join(claim.attributes)}, {claim.says}{within}"] = max(
            1, len(claim.points)
        )
    return claims


def numbers_of(attribute: Attribute) -> dict[str, Any]:
    """Return the numbers about one attribute, or about several jointly."""
    numbers: dict[str, Any] = {"test": _pick(attribute.test, TEST)}
    numbers |= {name: _interval(result) for name, result in attribute.measures.items()}
    if attribute.cutoffs is not None:
        worst = attribute.cutoffs.worst
        numbers["worst cut-off"] = {
            name: _plain(getattr(attribute.cutoffs, field)[worst])
            for name, field in (("cutoff", "cutoffs"), ("rate", "rates"), ("gap", "gaps"), ("low", "low"),
                                ("high", "high"), ("chance", "chance"))
        }  # fmt: skip
    if attribute.curve is not None:
        numbers["curve"] = _pick(attribute.curve, CURVE)
    if attribute.profile is not None:
        above = attribute.profile.above
        numbers["profile"] = {"contrast": _plain(attribute.profile.contrast), "points above": len(above)}
    for decision in attribute.decisions:
        numbers[f"decisions at {decision.threshold:g}"] = {
            **_pick(decision, DECISION),
            "gap": _interval(decision.gap),
        }
    for region in attribute.regions:
        numbers[f"region {region.region}"] = _pick(region.answer, REGION)
    if attribute.outcome is not None:
        numbers["outcome"] = numbers_of_outcome(attribute)
    return numbers


def numbers_of_outcome(attribute: Attribute) -> dict[str, Any]:
    """Return the numbers about the outcome along one attribute."""
    outcome = attribute.outcome
    if outcome is None:
        return {}
    numbers: dict[str, dict[str, Any]] = {
        "equalized odds": _pick(outcome.equalized_odds, TEST),
        "calibration gap": _interval(outcome.calibration_gap),
        "calibration": _pick(outcome.calibration, CURVE),
        "mean": _pick(outcome.curve, CURVE),
        "absolute error": _pick(outcome.absolute_error, CURVE),
        "auc": _pick(outcome.auc, AUC),
    }
    for label in outcome.labels:
        part = {"n": label.n, "gdp": _interval(label.gdp), "curve": _pick(label.curve, CURVE)}
        numbers[f"where it is {label.label}"] = part
    for rates in outcome.errors:
        numbers[f"false positives at {rates.threshold:g}"] = _pick(rates.false_positive, CURVE)
        numbers[f"false negatives at {rates.threshold:g}"] = _pick(rates.false_negative, CURVE)
    return {name: part for name, part in numbers.items() if part}


def numbers_of_rows(data: Data, name: str) -> dict[str, Any]:
    """Return what an audit does not say: bandwidths, cells, and measures as sums over the cells.

    ``plug-in`` is in the cells for so many rows, which are those of the audit unless rows come in groups, and
    ``every value`` in cells of one value each.
    """
    z = torch.as_tensor(data["scores"], dtype=torch.float64)[:, None]
    s = to_sensitive({name: data["sensitive_features"][name]})
    w = None if "sample_weight" not in data else torch.as_tensor(data["sample_weight"])
    cells = ScoreGap().cells(s, None if w is None else w / w.sum())
    fixed = HSIC().calibrate(z, s, weights=w, freeze=True)
    kernels = {"z": fixed.kernel_z, "s": fixed.kernel_s}
    values = len(s.values.unique())
    numbers: dict[str, Any] = {
        "bandwidths": {
            side: _plain(kernel.bandwidth) for side, kernel in kernels.items() if isinstance(kernel, Gaussian)
        },
        "cells": {"values": values, "cells": cells.size, "of one value": int(cells.single.sum())},
        "plug-in": {"gap": _plain(ScoreGap()(z, s, w)), "gdp": _plain(GDP()(z, s, w))},
    }
    if values <= MOST_VALUES:
        every = to_sensitive({name: data["sensitive_features"][name]}, kinds="categorical")
        numbers["every value"] = {"gap": _plain(ScoreGap()(z, every, w)), "gdp": _plain(GDP()(z, every, w))}
    return numbers


def digest(data: Data) -> str:
    """Return the beginning of the SHA-256 of all columns and options of a case."""
    sums = hashlib.sha256()
    for name, value in data.items():
        columns = value if name == "sensitive_features" else {name: value}
        for title, column in columns.items():
            is_column = isinstance(column, np.ndarray)
            sums.update(title.encode() + (column.tobytes() if is_column else repr(column).encode()))
    return sums.hexdigest()[:16]


def _interval(result: Any) -> dict[str, Any]:
    """Return the numbers of an interval; what a gap of the rows was is now its ``plug_in``."""
    found = _pick(result, INTERVAL)
    plug_in = getattr(result, "plug_in", None)
    return found if plug_in is None else found | {"estimate": _plain(plug_in), "shown": found["estimate"]}


def _pick(result: Any, names: Iterable[str]) -> dict[str, Value]:
    """Return those of the fields that a result has."""
    values = {name: getattr(result, name, None) for name in names}
    kept = {name: value for name, value in values.items() if value is not None and value != ()}
    for end in ("low", "high"):
        if kept.get(f"mean_{end}") == kept.get(end):
            kept.pop(f"mean_{end}", None)
    return {name: _plain(value) for name, value in kept.items()}


def _plain(value: Any) -> Any:
    """Return a value for JSON, with as many digits as are kept."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    number = float(f"{float(value):.{DIGITS}g}")
    return int(number) if number.is_integer() else number


# ---- seconds and power -------------------------------------------------------------------------------------


def time_audits() -> dict[str, Any]:
    """Return the CPU seconds of audits of 20,000 rows from Python, on one and on three attributes."""
    g = rng("gold", "seconds")
    shared = g.normal(size=20_000)
    columns = {f"s{j}": shared + (1 + j) * g.normal(size=len(shared)) for j in range(3)}
    scores, seconds = 0.3 * shared + g.normal(size=len(shared)), {}
    for count in (1, 3):
        start = time.process_time()
        audit(scores, sensitive_features=dict(list(columns.items())[:count]), random_state=0)
        seconds[f"{count} attribute{'s' * (count > 1)}"] = round(time.process_time() - start, 2)
    return {
        "what": "CPU seconds of audits of 20,000 rows",
        SECONDS: round(sum(seconds.values()), 2),
        "seconds": seconds,
    }


def find_waves() -> dict[str, Any]:
    """Return how often a wave of three periods along s is found, in rows and in rows read in pieces."""
    start = time.process_time()
    counts = dict.fromkeys(("rows", "pieces"), 0)
    for draw in range(WAVES):
        g = rng("gold", "wave", draw)
        s = g.uniform(size=WAVE_ROWS)
        z = WAVE * np.cos(6.0 * np.pi * s) + g.normal(size=WAVE_ROWS)
        found = independence_test(z, s, n_permutations=PERMUTATIONS, random_state=draw)
        counts["rows"] += found.pvalue <= 0.05
        source = open_source(pa.table({"z": z, "s": s}), batch_rows=WAVE_ROWS // 7)
        pieces = audit_source(source, scores="z", sensitive_features="s", random_state=draw)
        counts["pieces"] += pieces.attribute("s").test.pvalue <= 0.05
    return {
        "what": f"Share of {WAVES} samples of {WAVE_ROWS:,} rows in which a wave is found at 5 %",
        SECONDS: round(time.process_time() - start, 2),
        "numbers": {"found": {name: count / WAVES for name, count in counts.items()}},
    }


OTHERS: dict[str, Callable[[], dict[str, Any]]] = {"seconds": time_audits, "wave": find_waves}

# ---- comparison --------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """A number that is not what it was."""

    quantity: str
    old: str
    new: str
    relative: float  # to the old number; of a curve, to its largest
    width: float | None = None  # the share of the width of its interval, or of the mean width of its band


def differences(old: Mapping[str, Any], new: Mapping[str, Any], tolerance: float) -> list[Difference]:
    """Return the numbers that differ by more than a share of the old one, and those that one side lacks."""
    before, after = _flat(old), _flat(new)
    rows = []
    for name in dict.fromkeys((*before, *after)):
        if name not in before or name not in after:
            shown, now = (_show(side[name]) if name in side else "-" for side in (before, after))
            rows.append(Difference(name, shown, now, math.inf))
            continue
        row = _compare(name, before[name], after[name], _width(name, before))
        if row.relative > tolerance:
            rows.append(row)
    return rows


def _flat(numbers: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Return all numbers by the names on their way, such as "age: gap: low"."""
    flat: dict[str, Value] = {}
    for name, value in numbers.items():
        flat |= _flat(value, f"{prefix}{name}: ") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _width(name: str, numbers: Mapping[str, Value]) -> float | None:
    """Return the width of the interval that a number belongs to, or the mean width of the band."""
    low, high = (numbers.get(f"{name.rpartition(': ')[0]}: {end}") for end in ("low", "high"))
    if low is None or high is None or name.endswith((": n", ": points", ": pvalue")):
        return None
    return float(np.mean(np.asarray(high, dtype=float) - np.asarray(low, dtype=float))) or None


def _compare(name: str, old: Value, new: Value, width: float | None) -> Difference:
    """Return how far two values are apart; of lists, where they are farthest apart."""
    same_kind = isinstance(old, list) == isinstance(new, list)
    if isinstance(old, str) or isinstance(new, str) or not same_kind:
        return Difference(name, _show(old), _show(new), 0.0 if old == new else math.inf)
    before, after = (np.atleast_1d(np.asarray(side, dtype=float)) for side in (old, new))
    if len(before) != len(after):
        return Difference(name, _show(old), _show(new), math.inf)
    if not len(before):
        return Difference(name, "-", "-", 0.0)
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    gaps = np.where(same, 0.0, np.nan_to_num(np.abs(after - before), nan=math.inf))
    place, size = int(gaps.argmax()), float(np.nan_to_num(np.abs(before)).max())
    gap = float(gaps[place])
    where = f" [{place} of {len(before)}]" if isinstance(old, list) else ""
    relative = 0.0 if gap <= ROUNDING else (gap / size if size else math.inf)
    share = None if width is None else gap / width
    return Difference(name + where, _show(before[place]), _show(after[place]), relative, share)


def _show(value: Value) -> str:
    if isinstance(value, list):
        return f"{len(value)} numbers"
    return value if isinstance(value, str) else f"{value:.6g}"


def table_of(rows: Iterable[Difference]) -> str:
    """Return differences as lines of text."""
    lines = [("quantity", "old", "new", "relative", "of the width")]
    for row in rows:
        relative = "-" if math.isinf(row.relative) else f"{row.relative:.2%}"
        lines.append(
            (row.quantity, row.old, row.new, relative, "" if row.width is None else f"{row.width:.2%}")
        )
    sizes = [max(len(line[j]) for line in lines) for j in range(5)]
    return "\n".join(
        "  ".join(
            cell.rjust(size) if j else cell.ljust(size)
            for j, (cell, size) in enumerate(zip(line, sizes, strict=True))
        ).rstrip()
        for line in lines
    )


# ---- command -----------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    names = [*CASES, *OTHERS]
    parser.add_argument("--compare", action="store_true", help="print what the present code changes")
    parser.add_argument("--cases", nargs="*", default=names, choices=names, help="only some of the cases")
    parser.add_argument("--fresh", action="store_true", help="forget the numbers made before")
    words = "share of the old number below which a difference is not printed (default: %(default)g)"
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help=words)


def run(arguments: argparse.Namespace) -> None:
    """Measure the cases that are missing, or all that are asked for and compare them."""
    torch.set_num_threads(1)
    audit(**few_values(rng("gold", "imports"), 100), random_state=0)  # loads what audits import
    if arguments.compare:
        compare(arguments.cases, arguments.tolerance)
        return
    runs = Runs(NAME, fresh=arguments.fresh, seed=SEED, threads=1, lightgbm=version("lightgbm"))
    for name in arguments.cases:
        if runs.missing(case=name):
            result = work(name)
            runs.add(case=name, **result)
            print(f"{name}: {result['what']}, {result[SECONDS]:.1f} s of CPU", flush=True)
    print(runs.write())


def work(name: str) -> dict[str, Any]:
    """Return the result of a case, of the timing or of the wave."""
    return measure(name) if name in CASES else OTHERS[name]()


def compare(names: Iterable[str], tolerance: float) -> None:
    """Print for each case the numbers that differ from those that are written, and a summary."""
    results = json.loads((RESULTS / NAME).read_text())["runs"]
    gold = {result["case"]: result for result in results}
    changed, counted, seconds = [], 0, [0.0, 0.0]
    for name in names:
        if name not in gold:
            print(f"== {name}: no number is written", flush=True)
            continue
        old, new = gold[name], work(name)
        rows = differences(old.get("numbers", {}), new.get("numbers", {}), tolerance)
        if old.get("data") != new.get("data"):
            rows = [Difference("data", old.get("data", "-"), new.get("data", "-"), math.inf), *rows]
        count = len(_flat(old.get("numbers", {})))
        line = f"{len(rows)} of {count} numbers differ by more than {tolerance:g}"
        print(f"== {name}: {line}; {old[SECONDS]:.1f} -> {new[SECONDS]:.1f} s of CPU", flush=True)
        for what, before in old.get("seconds", {}).items():
            print(f"{what}: {before:.1f} -> {new['seconds'][what]:.1f} s of CPU")
        if rows:
            print(table_of(rows), flush=True)
        changed += rows
        counted += count
        seconds = [seconds[0] + old[SECONDS], seconds[1] + new[SECONDS]]
    print(
        f"{len(changed)} of {counted} numbers differ by more than {tolerance:g} of what they were; "
        f"{seconds[0]:.0f} -> {seconds[1]:.0f} s of CPU"
    )
