"""The report: an audit as one HTML file that loads nothing, runs nothing and judges nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import jinja2
from markupsafe import Markup, escape
from matplotlib.axes import Axes

from frhsic._files import replacing
from frhsic._text import clean, is_right_to_left, percent, shown
from frhsic.auditing import Attribute, Audit, Column, Measured, Outcome, Representation
from frhsic.inference import Curve, Interval, Profile
from frhsic.inference.bounds import Certificate
from frhsic.report import _words
from frhsic.report._plots import plot_bounds, plot_curve, plot_null, plot_profile, plot_transfer
from frhsic.report._svg import INK, svg
from frhsic.report._words import Meaning, digits, p_value

# Labels beyond these, and the text beyond that, make a page nobody reads.
_LABELS, _COMMAND = 16, 2_000
_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "matplotlib")


@dataclass(frozen=True)
class _Row:
    """One number of a table: its value, interval, chance, and what stands below them."""

    meaning: Meaning
    worded: Meaning
    value: str
    interval: str = ""
    chance: str = ""
    remark: str = ""
    wide: str = ""  # instead of interval and chance
    notes: tuple[str, ...] = ()
    explained: bool = True  # the first time that a number stands on the page


@dataclass(frozen=True)
class _Figure:
    svg: Markup
    caption: str


@dataclass(frozen=True)
class _Section:
    found: Attribute
    name: str
    key: str
    figures: tuple[_Figure, ...]
    rows: tuple[_Row, ...]
    outcome_rows: tuple[_Row, ...]
    outcome_figures: tuple[_Figure, ...]


def write_report(
    audit: Audit,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    command: str | None = None,
    source: str | None = None,
    date: datetime | None = None,
) -> None:
    """Write an audit as one HTML file that holds everything it needs.

    The file is written beside its place and moved there when it is whole: an interruption leaves the old one.

    Parameters
    ----------
    audit : Audit
    path : str or path
    title, command, source, date
        As in :func:`render_report`.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from frhsic.auditing import audit
    >>> x = np.random.default_rng(0).normal(size=(80, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(audit(x[:, 0], sensitive_features=x[:, 1], random_state=0), f"{folder}/report.html")
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"'path' must be a file. Got the folder '{target}'. Add a name: report.html.")
    page = render_report(audit, title=title, command=command, source=source, date=date).encode()
    with replacing(target) as file:
        file.write(page)


def render_report(
    audit: Audit,
    *,
    title: str | None = None,
    command: str | None = None,
    source: str | None = None,
    date: datetime | None = None,
) -> str:
    """Return an audit as an HTML page: a summary in words, figures, tables, and how it was made.

    Parameters
    ----------
    audit : Audit
    title : str, optional
    command : str, optional
        What made it, to be shown at the end.
    source : str, optional
        Where the rows came from, such as the name of a file.
    date : datetime, optional
        None is now. With a date given, the same audit gives the same page byte by byte.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic.auditing import audit
    >>> x = np.random.default_rng(0).normal(size=(80, 2))
    >>> render_report(audit(x[:, 0], sensitive_features=x[:, 1], random_state=0), title="Rows")[:15]
    '<!doctype html>'
    """
    names = [shown(name) for found in audit.attributes for name in found.names]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("frhsic.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"say": _speaker(audit), "name": _name, "digits": digits}
    return environment.get_template("report.html").render(
        audit=audit,
        title=shown(title, 200) if title else f"Dependence of the {audit.subject} on {_listed(names)}",
        date=_dated(date),
        source=None if source is None else shown(source, 200),
        command=None if command is None else _shortened(clean(command), _COMMAND),
        summary=audit.sentences(),
        notes=audit.notes[1:] if audit.trained_on else audit.notes,
        overview=[_overview(found, audit) for found in audit.attributes] if len(names) > 1 else [],
        sections=tuple(_sections(audit)),
        subject="the score" if audit.subject == "score" else "the representation",
        transfer=_transfer_figures(audit),
        certificate=audit.certificate,
        bounds=None if audit.certificate is None else _bounds_figure(audit.certificate),
        bound_titles=_words.BOUNDS,
        kinds=_words.KINDS,
        recovered=_words.RECOVERED,
        fresh=_words.TRANSFER,
        described=[_described(column) for column in audit.columns],
        versions={"frhsic": audit.version, "python": platform.python_version(), **_versions()},
    )


# ---- text ------------------------------------------------------------------------------------------------


def _name(text: object) -> Markup:
    """Return a name that cannot change the direction of the text around it."""
    name = shown(text)
    # A word as long as a column may be broken anywhere; others only between words.
    if max(map(len, name.split()), default=0) > 18:
        return Markup('<bdi class="long">{}</bdi>').format(name)
    return Markup("<bdi>{}</bdi>").format(name)


def _speaker(audit: Audit) -> Callable[[object], Markup]:
    """Return a filter for sentences that hold names: long ones are cut, others are kept to themselves."""
    typed = {name for column in audit.columns for name in (column.name, *column.labels)}
    typed |= {shown(name) for name in typed}
    odd = sorted((name for name in typed if shown(name) != name or is_right_to_left(name)), key=len)
    pattern = re.compile("|".join(map(re.escape, reversed(odd))) or r"(?!)")

    def say(text: object) -> Markup:
        whole, parts, end = str(text), [], 0
        for found in pattern.finditer(whole):
            parts += [escape(clean(whole[end : found.start()])), _name(found[0])]
            end = found.end()
        return Markup("").join([*parts, escape(clean(whole[end:]))])

    return say


def _listed(names: Sequence[str]) -> str:
    names = [*names[:3], "more"] if len(names) > 3 else list(names)
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _dated(date: datetime | None) -> str:
    date = datetime.now(UTC) if date is None else date
    return f"{date:%Y-%m-%d %H:%M} {date.tzname() or ''}".strip()


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _LIBRARIES}


# ---- tables ----------------------------------------------------------------------------------------------


def _sections(audit: Audit) -> Iterator[_Section]:
    columns = {column.name: column for column in audit.columns}
    told: set[str] = set()

    def once(rows: Iterator[_Row]) -> tuple[_Row, ...]:
        marked = []
        for row in rows:
            marked.append(replace(row, explained=row.meaning.means not in told))
            told.add(row.meaning.means)
        return tuple(marked)

    for place, found in enumerate(audit.every):
        key = f"a{place}"
        column = None if found.kind == "joint" else columns[found.names[0]]
        yield _Section(
            found=found,
            name=_listed([shown(name) for name in found.names]),
            key=key,
            figures=tuple(_figures(found, column, key, audit)),
            rows=once(_rows(found, audit)),
            outcome_rows=() if found.outcome is None else once(_outcome_rows(found.outcome, found, audit)),
            outcome_figures=()
            if found.outcome is None or column is None
            else tuple(_outcome_figures(found.outcome, column, key, audit)),
        )


def _worded(meaning: Meaning, found: Attribute, audit: Audit, label: str = "") -> Meaning:
    z = "the score" if audit.subject == "score" else "the representation"
    s = _listed([shown(name) for name in found.names])
    return Meaning(*(text.format(s=s, z=z, label=shown(label)) for text in meaning))


def _points(audit: Audit, x: float) -> str:
    """Return a gap of the score in points of a hundred, where the score is a probability."""
    if audit.score is None or not audit.score.unit_interval:
        return ""
    return f"{100.0 * x:.1f} points of 100"


def _of_interval(
    meaning: Meaning,
    interval: Interval,
    found: Attribute,
    audit: Audit,
    *,
    gap: bool = False,
    label: str = "",
) -> _Row:
    chance = ""
    if interval.chance is not None and interval.chance_high is not None:
        chance = _chance(interval.chance, interval.chance_high)
    return _Row(
        meaning,
        _worded(meaning, found, audit, label),
        digits(interval.estimate),
        f"{digits(interval.low)} to {digits(interval.high)}",
        chance,
        _points(audit, interval.estimate) if gap else "",
        notes=(f"The interval is for {interval.target}; {interval.method}.", *interval.notes),
    )


def _chance(mean: float, high: float) -> str:
    # Of a debiased number the mean by chance is zero but for the draws, whose digits say nothing.
    average = "about 0" if abs(mean) < 0.2 * high else digits(mean)
    return f"{average}, seldom above {digits(high)}"


def _rows(found: Attribute, audit: Audit) -> Iterator[_Row]:
    said, behind = p_value(found.test)
    words = (
        f"By {found.test.measure} ({found.test.method}); its level is "
        f"{'exact' if found.test.exact else 'right for many rows'}.",
        *found.test.notes,
    )
    yield _Row(_words.TEST, _worded(_words.TEST, found, audit), said, wide=behind, notes=words)
    if found.gdp is not None:
        yield _of_interval(_words.GDP, found.gdp, found, audit, gap=True)
    yield _of_interval(_words.NORMALIZED_HSIC, found.normalized_hsic, found, audit)
    yield _of_interval(_words.HSIC, found.hsic, found, audit)
    if found.distance_correlation is not None:
        yield _of_interval(_words.DISTANCE_CORRELATION, found.distance_correlation, found, audit)
    yield _of_measured(_words.KERNEL_HGR, found.kernel_hgr, found, audit)


def _of_measured(meaning: Meaning, measured: Measured, found: Attribute, audit: Audit) -> _Row:
    return _Row(
        meaning,
        _worded(meaning, found, audit),
        digits(measured.value),
        "–",
        _chance(measured.chance, measured.chance_high),
        notes=(f"On {measured.n:,} rows.",),
    )


def _outcome_rows(outcome: Outcome, found: Attribute, audit: Audit) -> Iterator[_Row]:
    if outcome.equalized_odds is not None:
        said, behind = p_value(outcome.equalized_odds)
        meaning = _words.EQUALIZED_ODDS
        yield _Row(
            meaning, _worded(meaning, found, audit), said, wide=behind, notes=outcome.equalized_odds.notes
        )
    for given in outcome.labels:
        meaning = _words.GIVEN
        if given.label == outcome.equal_opportunity:
            meaning = meaning._replace(title=f"{meaning.title} (equal opportunity)")
        if given.gdp is None:
            if audit.subject == "score":
                why = f"not measured: {given.n:,} rows are too few, or the attribute does not vary in them"
                yield _Row(meaning, _worded(meaning, found, audit, given.label), "–", wide=why)
        else:
            row = _of_interval(meaning, given.gdp, found, audit, gap=True, label=given.label)
            yield replace(row, notes=(f"On {given.n:,} rows.", *row.notes))
    if outcome.calibration_gap is not None:
        yield _of_interval(_words.CALIBRATION, outcome.calibration_gap, found, audit, gap=True)


def _overview(found: Attribute, audit: Audit) -> dict[str, str]:
    measured = found.normalized_hsic if found.gdp is None else found.gdp
    low, high = measured.chance, measured.chance_high
    return {
        "name": found.name,
        "p": f"{found.test.reported:.3g}",
        "value": digits(measured.estimate),
        "points": "" if found.gdp is None else _points(audit, measured.estimate),
        "interval": f"{digits(measured.low)} to {digits(measured.high)}",
        "chance": "–" if low is None or high is None else _chance(low, high),
    }


def _described(column: Column) -> dict[str, object]:
    told = [(label, count) for label, count in zip(column.labels, column.counts, strict=False) if count]
    told.sort(key=lambda pair: -pair[1])
    return {"column": column, "labels": told[:_LABELS], "more": max(0, column.distinct - len(told[:_LABELS]))}


# ---- figures ---------------------------------------------------------------------------------------------


def _claimed(
    audit: Audit, question: str, column: Column, says: Sequence[str], label: str | None = None
) -> bool:
    """Return whether places along an attribute are claimed."""
    return any(
        (claim.question, claim.attributes, claim.label) == (question, (column.name,), label)
        and claim.says in says
        for claim in audit.claims
    )


def _figures(found: Attribute, column: Column | None, key: str, audit: Audit) -> Iterator[_Figure]:
    if column is None or _untold(column):
        return
    s = shown(column.name)
    if found.curve is not None:
        claimed = _claimed(audit, "dependence", column, ("above", "below"))
        title = f"Mean score along {s}"
        yield _curve_figure(found.curve, column, f"{key}-curve", title, "mean score", claimed)
    elif found.test.null:
        test = found.test
        yield _Figure(
            svg(
                lambda ax: plot_null(test, ax=ax),
                key=f"{key}-null",
                title=f"Test of independence on {s}",
                description=(
                    f"Histogram of the statistic under {len(test.null):,} random pairings, from "
                    f"{digits(min(test.null))} to {digits(max(test.null))}; observed: "
                    f"{digits(test.statistic)}."
                ),
            ),
            f"The statistic of the test, beside its values when the rows of {s} are paired at random.",
        )
    if found.profile is not None:
        claimed = _claimed(audit, "dependence", column, ("differs",))
        yield _profile_figure(found.profile, column, f"{key}-profile", claimed)


def _untold(column: Column) -> bool:
    """Return whether every label of a column has too few rows to be told: then there is nothing to draw."""
    return column.kind == "categorical" and not any(column.counts)


def _kept(found: Curve | Profile, column: Column) -> tuple[list[int], str]:
    """Return the points to draw, and a remark where labels are left out."""
    every, told = list(range(len(found.points))), column.told(found.points)
    if column.kind != "categorical":
        # The smallest and the largest value belong to single rows, as in the description of the data.
        if len(told) in (0, 1, len(every)):
            return every, ""
        return told, " Drawn from the 1 % to the 99 % quantile."
    # The mean of a label of a few rows could be the score of one person: such labels have no count.
    kept = sorted(sorted(told, key=lambda i: -found.mass[i])[:_LABELS])
    if len(kept) == len(every):
        return kept, ""
    return kept, f" Drawn are the {len(kept)} most frequent of {len(every)} labels."


def _of(values: tuple[float, ...], rows: list[int]) -> tuple[float, ...]:
    return tuple(values[i] for i in rows)


def _at(point: float, column: Column) -> str:
    if column.kind == "categorical":
        return f"for {shown(column.labels[int(point)])}"
    return f"at {digits(point)}"


def _size(column: Column, n: int) -> tuple[float, float]:
    return (4.7, 3.3) if column.kind == "continuous" else (4.7, max(2.2, 1.5 + 0.27 * n))


def _curve_figure(
    curve: Curve, column: Column, key: str, title: str, ylabel: str, claimed: bool, *, zero: bool = False
) -> _Figure:
    rows, left_out = _kept(curve, column)
    drawn = replace(
        curve,
        points=_of(curve.points, rows),
        mean=_of(curve.mean, rows),
        low=_of(curve.low, rows),
        high=_of(curve.high, rows),
        mass=_of(curve.mass, rows),
    )
    categorical = column.kind == "categorical"
    low, high = (pick(rows, key=curve.mean.__getitem__) for pick in (min, max))

    def draw(ax: Axes) -> None:
        plot_curve(drawn, labels=column.labels, ylabel=ylabel, ax=ax)
        if zero:
            (ax.axvline if categorical else ax.axhline)(0.0, color=INK, linewidth=0.7, zorder=1)

    line = "the line at zero" if zero else "the dashed line"
    where = [_at(curve.points[i], column) for i in (low, high)]
    outside = sum(not a <= curve.overall <= b for a, b in zip(drawn.low, drawn.high, strict=True))
    return _Figure(
        svg(
            draw,
            key=key,
            title=title,
            description=(
                f"The {ylabel} goes from {digits(curve.mean[low])} {where[0]} to {digits(curve.mean[high])} "
                f"{where[1]}; overall it is {digits(curve.overall)}. The "
                f"{percent(curve.confidence_level)} band "
                f"leaves the overall mean at {outside} of {len(rows)} points."
            ),
            size=_size(column, len(rows)),
        ),
        f"{title}. "
        + ("The bars hold all points at once" if categorical else "The band holds the whole curve")
        + f" with {percent(curve.confidence_level)} confidence ({curve.target}). "
        + (
            f"The summary says where it is shown to leave {line}."
            if claimed
            else f"That it leaves {line} anywhere is not shown."
        )
        + left_out,
    )


def _profile_figure(profile: Profile, column: Column, key: str, claimed: bool) -> _Figure:
    rows, left_out = _kept(profile, column)
    drawn = replace(
        profile,
        points=_of(profile.points, rows),
        contrast=_of(profile.contrast, rows),
        chance=_of(profile.chance, rows),
        mass=_of(profile.mass, rows),
    )
    s = shown(column.name)
    peak = max(rows, key=profile.contrast.__getitem__)
    where = _at(profile.points[peak], column)
    title = f"Where along {s} the distribution differs"
    limit = "grey marks" if column.kind == "categorical" else "dashed limit"
    return _Figure(
        svg(
            lambda ax: plot_profile(drawn, labels=column.labels, ax=ax),
            key=key,
            title=title,
            description=(
                f"The difference is largest {where}: {digits(profile.contrast[peak])}, where chance seldom "
                f"exceeds {digits(profile.chance[peak])}. It is above chance at {len(drawn.above)} of "
                f"{len(rows)} points."
            ),
            size=_size(column, len(rows)),
        ),
        f"{title}: the rows at each value against all rows, spread and shape included. Random pairings "
        f"exceed the {limit} anywhere in {percent(1.0 - profile.confidence_level)} of samples. "
        + ("It is shown to differ where it does." if claimed else "That it differs anywhere is not shown.")
        + left_out,
    )


def _outcome_figures(outcome: Outcome, column: Column, key: str, audit: Audit) -> Iterator[_Figure]:
    if _untold(column):
        return
    s = shown(column.name)
    for place, given in enumerate(outcome.labels):
        if given.curve is not None and len(outcome.labels) <= 3:
            title = f"Mean score along {s} where the outcome is {shown(given.label, 30)}"
            claimed = _claimed(audit, "within outcomes", column, ("above", "below"), given.label)
            yield _curve_figure(given.curve, column, f"{key}-given{place}", title, "mean score", claimed)
    if outcome.calibration is not None:
        yield _curve_figure(
            outcome.calibration,
            column,
            f"{key}-calibration",
            f"Outcome minus score along {s}",
            "mean of outcome − score",
            _claimed(audit, "calibration", column, ("above", "below")),
            zero=True,
        )


def _transfer_figures(audit: Audit) -> list[_Figure]:
    representation = audit.representation
    if representation is None or not representation.transfer:
        return []
    return [_transfer_figure(representation, place) for place in range(len(representation.transfer[0].gdp))]


def _transfer_figure(representation: Representation, place: int) -> _Figure:
    name = " and ".join(representation.transfer[0].gdp[place].attributes)
    said = "; ".join(
        f"{head.head}: {head.metric} {digits(head.performance)}, GDP {digits(head.gdp[place].estimate)}"
        for head in representation.transfer
    )
    return _Figure(
        svg(
            lambda ax: plot_transfer(representation, attribute=name, ax=ax),
            key=f"transfer{place}",
            title=f"Fresh heads and {shown(name)}",
            description=f"{said}.",
        ),
        "How well fresh heads predict the outcome, and the mean gap of their predictions along "
        f"{shown(name)}.",
    )


def _bounds_figure(certificate: Certificate) -> _Figure:
    last = certificate.heads[-1]
    return _Figure(
        svg(
            lambda ax: plot_bounds(certificate, ax=ax),
            key="bounds",
            title="Bounds by resolution",
            description=(
                f"On a logarithmic scale, at resolution {last.m}: the paper's bound is "
                f"{digits(last.paper_bound)}, the worst head {digits(last.worst_rms)} and what chance gives "
                f"it {digits(last.null_mean)}."
            ),
        ),
        "The largest gap that a head of norm one has on these rows, by how finely the attributes are "
        "resolved, beside the paper’s bound on it and what chance alone gives.",
    )
