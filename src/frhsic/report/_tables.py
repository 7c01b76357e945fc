"""The tables of the report: each number with its interval, its value under independence and its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from frhsic._text import digits, number, percent
from frhsic.auditing import MEASURES, Attribute, Audit, Column, Estimate
from frhsic.inference import Interval, TestResult
from frhsic.report import _words
from frhsic.report._words import Meaning

# More labels of a column than these are not listed, nor drawn.
MOST_LABELS = 16


@dataclass(frozen=True)
class Row:
    """One number of a table."""

    meaning: Meaning  # for all attributes
    words: Meaning  # for this one
    value: str
    interval: str = ""
    chance: str = ""
    remark: str = ""
    wide: str = ""  # instead of interval and chance
    notes: tuple[str, ...] = ()
    explained: bool = True  # the first time that a number stands in the report


def attribute_rows(found: Attribute, audit: Audit) -> Iterator[Row]:
    """Return the rows of one attribute: its test, then every measure."""
    exact = "exact" if found.test.exact else "right for many rows"
    method = f"By {found.test.measure} ({found.test.method}); its significance level is {exact}."
    yield _test_row(_words.TEST, found.test, found, audit, method)
    for name, result in found.measures.items():
        measure = MEASURES[name]
        yield _measure_row(Meaning.of_measure(measure), result, found, audit, gap=measure.of_score)


def decision_rows(found: Attribute, audit: Audit) -> Iterator[Row]:
    """Return a row for each threshold."""
    for one in found.decisions:
        row = _measure_row(_words.DECISION, one.gap, found, audit, label=number(one.threshold))
        yield replace(row, remark=f"{100.0 * one.gap.estimate:.1f} percentage points")


def outcome_rows(found: Attribute, audit: Audit) -> Iterator[Row]:
    """Return the rows beside the outcome, if there is one."""
    outcome = found.outcome
    if outcome is None:
        return
    if outcome.equalized_odds is not None:
        yield _test_row(_words.EQUALIZED_ODDS, outcome.equalized_odds, found, audit)
    for one in outcome.labels:
        meaning = _words.WITHIN_LABEL
        if one.label == outcome.equal_opportunity:
            meaning = meaning._replace(title=f"{meaning.title} (equal opportunity)")
        if one.gdp is not None:
            row = _measure_row(meaning, one.gdp, found, audit, gap=True, label=one.label)
            yield replace(row, notes=(f"On {one.n:,} rows.", *row.notes))
        elif audit.subject == "score":
            why = f"not measured: {one.n:,} rows are too few, or the attribute does not vary in them"
            yield Row(meaning, meaning.fill(found, audit, one.label), "–", wide=why)
    if outcome.calibration_gap is not None:
        yield _measure_row(_words.CALIBRATION, outcome.calibration_gap, found, audit, gap=True)


def explain_once(rows: Iterator[Row], known: set[str]) -> tuple[Row, ...]:
    """Return rows of which only the first of each meaning is explained."""
    marked = []
    for row in rows:
        marked.append(replace(row, explained=row.meaning.means not in known))
        known.add(row.meaning.means)
    return tuple(marked)


def overview_rows(audit: Audit) -> list[tuple[Attribute, Row]]:
    """Return the attributes with the first measure that all of them have."""
    common = [name for name in MEASURES if all(name in found.measures for found in audit.attributes)]
    if len(audit.attributes) == 1 or not common:
        return []
    measure = MEASURES[common[0]]
    meaning = Meaning.of_measure(measure)
    return [
        (found, _measure_row(meaning, found.measures[measure.name], found, audit, gap=measure.of_score))
        for found in audit.attributes
    ]


def describe_column(column: Column) -> dict[str, object]:
    """Return a column with its most frequent labels, and how many more there are."""
    labels = [(label, count) for label, count in zip(column.labels, column.counts, strict=False) if count]
    labels.sort(key=lambda pair: -pair[1])
    kept = labels[:MOST_LABELS]
    return {"column": column, "labels": kept, "more": max(0, column.distinct - len(kept))}


def _test_row(meaning: Meaning, test: TestResult, found: Attribute, audit: Audit, *notes: str) -> Row:
    method = []
    if test.n_permutations is not None:
        draws = f"{test.n_permutations:,} {'permutations' if 'permut' in test.method else 'draws'}"
        smallest = test.pvalue <= 1.0 / (test.n_permutations + 1) + 1e-12
        method.append(f"the smallest that {draws} can give" if smallest else draws)
    if test.adjusted is not None:
        method.append(f"p = {test.adjusted:.3g} corrected for all tests of this audit")
    words = meaning.fill(found, audit)
    notes = (*notes, *test.notes)
    return Row(meaning, words, f"p = {test.pvalue:.3g}", wide="; ".join(method), notes=notes)


def _measure_row(
    meaning: Meaning,
    result: Interval | Estimate,
    found: Attribute,
    audit: Audit,
    *,
    gap: bool = False,
    label: str = "",
) -> Row:
    if isinstance(result, Interval):
        interval = f"{digits(result.low)} to {digits(result.high)}"
        notes = (f"The interval is for {result.target}; {result.method}.", *result.notes)
    else:
        interval, notes = "–", (f"On {result.n:,} rows.",)
    score = audit.score if gap else None
    remark = ""
    if score is not None and score.unit_interval:
        remark = f"{score.format_gap(result.estimate)} {score.gap_unit}"
    chance = ""
    if result.chance is not None and result.chance_high is not None:
        # Of a debiased number the mean under independence is zero but for the draws: no digits of those.
        mean, high = result.chance, digits(result.chance_high)
        average = "about 0" if abs(mean) < 0.2 * result.chance_high else digits(mean)
        chance = f"{average} on average, {percent(audit.confidence_level)} below {high}"
        plug_in = result.plug_in if isinstance(result, Interval) else None
        if plug_in is not None:
            chance += f"; these rows, with what chance adds: {digits(plug_in)}"
    words = meaning.fill(found, audit, label)
    return Row(meaning, words, digits(result.estimate), interval, chance, remark, notes=notes)
