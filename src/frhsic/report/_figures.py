"""The figures of the report: SVG elements with titles, descriptions and captions."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from matplotlib.axes import Axes

from frhsic._text import digits, number, percent, shown
from frhsic.auditing import Attribute, Audit, Column, ErrorRates, Outcome, Representation, shown_points
from frhsic.inference import AdjustedCurve, AUCCurve, Carriers, Curve, Profile
from frhsic.inference.bounds import Certificate
from frhsic.report._plots import (
    plot_auc,
    plot_bounds,
    plot_curve,
    plot_decision_gaps,
    plot_error_rates,
    plot_null,
    plot_profile,
    plot_transfer,
)
from frhsic.report._svg import INK, Picture, draw_picture
from frhsic.report._tables import MOST_LABELS
from frhsic.report._words import TEXT

_Along = TypeVar("_Along", Curve, Profile, AdjustedCurve, Carriers, AUCCurve)


def attribute_figures(found: Attribute, column: Column | None, key: str, audit: Audit) -> Iterator[Picture]:
    """Return the curve (or the null distribution of the test) and the profile of one attribute."""
    if column is None:
        return
    s = shown(column.name)
    claims = audit.find_claims("dependence", found.names)
    if found.curve is not None:
        title = f"Mean score along {s}"
        yield from _curve_figure(found.curve, column, f"{key}-curve", title, "mean score", claims)
    elif found.test.null:
        test, null = found.test, found.test.null
        yield draw_picture(
            partial(plot_null, test),
            key=f"{key}-null",
            title=f"Test of independence on {s}",
            description=f"Histogram of the statistic under {len(null):,} random pairings, from "
            f"{digits(min(null))} to {digits(max(null))}; observed: {digits(test.statistic)}.",
            caption=f"The statistic of the test, beside its values when the rows of {s} are paired at "
            "random.",
        )
    if found.profile is not None:
        yield from _profile_figure(found.profile, column, f"{key}-profile", "differs" in claims)


def decision_figures(found: Attribute, column: Column | None, key: str) -> Iterator[Picture]:
    """Return the gap of decisions at every cut-off, and the rate of decisions at the thresholds."""
    gaps = found.cutoffs
    if gaps is None or column is None:
        return
    s, share, k = shown(column.name), percent(gaps.confidence_level), gaps.worst
    thresholds = [one.threshold for one in found.decisions]
    title = f"Gap of decisions along {s} at every cut-off"
    yield draw_picture(
        partial(plot_decision_gaps, gaps, thresholds=thresholds),
        key=f"{key}-cutoffs",
        title=title,
        description=f"The gap is largest at {digits(gaps.cutoffs[k])}: {digits(gaps.gaps[k])}. The {share} "
        f"band reaches at most {digits(max(gaps.high))}.",
        caption=f"{title}: with a decision for every score above the cut-off, how far the rate at a value of "
        f"{s} lies from the overall rate, on average over the rows. The band holds all cut-offs with {share} "
        f"confidence.{' Grey: the mean under independence.' if gaps.plug_in == gaps.gaps else ''}",
    )
    for place, one in enumerate(found.decisions[:3]):
        if one.curve is not None:
            title = f"Share of scores above {number(one.threshold)} along {s}"
            yield from _curve_figure(one.curve, column, f"{key}-rate{place}", title, "share above", None)


def outcome_figures(
    outcome: Outcome | None, column: Column | None, key: str, audit: Audit
) -> Iterator[Picture]:
    """Return the outcome along s, errors, AUC and calibration, then the curves within labels of it."""
    if outcome is None or column is None:
        return
    s, label = (
        shown(column.name),
        None if outcome.equal_opportunity is None else shown(outcome.equal_opportunity, 30),
    )
    words = TEXT["outcome"]
    if outcome.curve is not None:
        kind = "mean" if label is None else "rate"
        title, ylabel = (words[f"{kind}{part}"].format(s=s, label=label) for part in ("", "_axis"))
        yield from _curve_figure(outcome.curve, column, f"{key}-outcome", title, ylabel, None)
    if outcome.absolute_error is not None:
        title, ylabel = words["error"].format(s=s), words["error_axis"]
        yield from _curve_figure(outcome.absolute_error, column, f"{key}-error", title, ylabel, None)
    for place, errors in enumerate(outcome.errors[:3]):
        yield from _errors_figure(errors, column, f"{key}-errors{place}", label)
    if outcome.auc is not None:
        yield from _auc_figure(outcome.auc, column, f"{key}-auc", label)
    if outcome.calibration is not None:
        title, ylabel = f"Outcome minus score along {s}", "mean of outcome − score"
        claims = audit.find_claims("calibration", (column.name,))
        yield from _curve_figure(
            outcome.calibration, column, f"{key}-calibration", title, ylabel, claims, zero=True
        )
    for place, one in enumerate(outcome.labels if len(outcome.labels) <= 3 else ()):
        if one.curve is not None:
            title = f"Mean score along {s} where the outcome is {shown(one.label, 30)}"
            claims = audit.find_claims("within outcomes", (column.name,), one.label)
            yield from _curve_figure(one.curve, column, f"{key}-given{place}", title, "mean score", claims)


def _errors_figure(errors: ErrorRates, column: Column, key: str, label: str | None) -> Iterator[Picture]:
    """Return the picture of the error rates at one threshold, if any of their points may be shown."""
    curves, remarks, ends = {}, [], []
    words, fields = TEXT["outcome"], ("points", "mean", "low", "high", "mass")
    for name in ("false_positive", "false_negative"):
        curve = getattr(errors, name)
        rows, remark = ([], "") if curve is None else select_points(curve, column)
        curves[name] = take_points(curve, rows, *fields) if rows else None
        if rows:
            remarks.append(remark)
            low, high = (digits(pick(curve.mean[i] for i in rows)) for pick in (min, max))
            share, level = digits(curve.overall), percent(curve.confidence_level)
            ends.append(words["errors_ends"].format(name=words[name], share=share, low=low, high=high))
    if not ends:
        return
    fill = {"s": shown(column.name), "label": label, "t": number(errors.threshold), "level": level}
    title = words["errors"].format(**fill)
    yield draw_picture(
        partial(plot_error_rates, ErrorRates(errors.threshold, **curves), labels=column.labels),
        key=key,
        title=title,
        description=" ".join(ends),
        caption=f"{title}: {words['errors_caption'].format(**fill)}{max(remarks, key=len)}",
        size=_size(column, max(len(one.points) for one in curves.values() if one is not None)),
    )


def _auc_figure(auc: AUCCurve, column: Column, key: str, label: str | None) -> Iterator[Picture]:
    """Return the picture of the AUC along s, if any of its windows may be shown."""
    rows, remark = select_points(auc, column)
    if not rows:
        return
    part, words = auc.take(rows), TEXT["outcome"]
    ends = [pick(range(len(rows)), key=part.auc.__getitem__) for pick in (min, max)]
    low, high = (f"{digits(part.auc[i])} ({part.name(i)})" for i in ends)
    fill = {"s": shown(column.name), "label": label, "level": percent(auc.confidence_level)}
    fill |= {"n": f"{min(part.counts):,}", "low": low, "high": high, "auc": digits(auc.overall)}
    title, caption = words["auc"].format(**fill), words["auc_of_labels" if auc.categories else "auc_caption"]
    yield draw_picture(
        partial(plot_auc, part),
        key=key,
        title=title,
        description=words["auc_description"].format(**fill),
        caption=f"{title}: {caption.format(**fill)}{remark}",
        size=_size(column, len(rows)),
    )


def transfer_figures(representation: Representation | None) -> Iterator[Picture]:
    """Return the figure of fresh heads for each attribute."""
    if representation is None or not representation.transfer:
        return
    for place, gdp in enumerate(representation.transfer[0].gdp):
        name = " and ".join(gdp.attributes)
        heads = "; ".join(
            f"{head.head}: {head.metric} {digits(head.performance)}, GDP {digits(head.gdp[place].estimate)}"
            for head in representation.transfer
        )
        yield draw_picture(
            partial(plot_transfer, representation, attribute=name),
            key=f"transfer{place}",
            title=f"Fresh heads and {shown(name)}",
            description=f"{heads}.",
            caption="The performance of fresh heads, and the mean gap of their predictions along "
            f"{shown(name)}.",
        )


def bounds_figure(certificate: Certificate) -> Picture:
    """Return the bounds of a certificate by resolution."""
    last = certificate.heads[-1]
    return draw_picture(
        partial(plot_bounds, certificate),
        key="bounds",
        title="Bounds by resolution",
        description=f"On a logarithmic scale, at resolution {last.m}: the paper's bound is "
        f"{digits(last.paper_bound)}, the worst head {digits(last.worst_rms)} and its mean under "
        f"independence {digits(last.null_mean)}.",
        caption="The largest gap that a head of norm one has on these rows, by how finely the attributes are "
        "resolved, beside the paper’s bound on it and its value under independence.",
    )


def select_points(found: _Along, column: Column) -> tuple[list[int], str]:
    """Return the points to draw, and a remark where some are left out."""
    every, visible = list(range(len(found.points))), shown_points(found, column)
    if column.kind != "categorical":
        # The smallest and the largest value belong to single rows, as in the description of the data.
        if len(visible) == len(every):
            return every, ""
        few = " Values of fewer than 10 rows are left out."
        return visible, " Drawn from the 1 % to the 99 % quantile." + (
            few if hasattr(found, "counts") else ""
        )
    # The mean of a label of a few rows could be the score of one person: such labels have no count.
    kept = sorted(sorted(visible, key=lambda i: -found.mass[i])[:MOST_LABELS])
    if len(kept) == len(every):
        return kept, ""
    return kept, f" Drawn are the {len(kept)} most frequent of {len(every)} labels."


def take_points(found: _Along, rows: list[int], *fields: str) -> _Along:
    """Return some of the points."""
    values: dict[str, Any] = {field: tuple(getattr(found, field)[i] for i in rows) for field in fields}
    return replace(found, **values)


def _format_point(point: float, column: Column) -> str:
    if column.kind == "categorical":
        return f"for {shown(column.labels[int(point)])}"
    return f"at {digits(point)}"


def _size(column: Column, n: int) -> tuple[float, float]:
    return (4.7, 3.3) if column.kind == "continuous" else (4.7, max(2.2, 1.5 + 0.27 * n))


def _curve_figure(
    curve: Curve,
    column: Column,
    key: str,
    title: str,
    ylabel: str,
    claims: Container[str] | None,
    *,
    zero: bool = False,
) -> Iterator[Picture]:
    """Return the picture of a curve, if any of its points may be shown."""
    rows, remark = select_points(curve, column)
    if not rows:
        return
    part = take_points(curve, rows, "points", "mean", "low", "high", "mass")
    categorical = column.kind == "categorical"

    def draw(ax: Axes) -> None:
        plot_curve(part, labels=column.labels, ylabel=ylabel, ax=ax)
        if zero:
            (ax.axvline if categorical else ax.axhline)(0.0, color=INK, linewidth=0.7, zorder=1)

    ends = [pick(rows, key=curve.mean.__getitem__) for pick in (min, max)]
    low, high = (f"{digits(curve.mean[i])} {_format_point(curve.points[i], column)}" for i in ends)
    outside = sum(not a <= curve.overall <= b for a, b in zip(part.low, part.high, strict=True))
    share, line = percent(curve.confidence_level), "the line at zero" if zero else "the dashed line"
    band = "The bars hold all points at once" if categorical else "The band holds the whole curve"
    shows = "" if claims is None else f"A difference from {line} is not shown anywhere."
    if claims is not None and ("above" in claims or "below" in claims):
        shows = f"The summary says where it is shown to differ from {line}."
    yield draw_picture(
        draw,
        key=key,
        title=title,
        description=f"The {ylabel} goes from {low} to {high}; overall it is {digits(curve.overall)}. The "
        f"{share} band leaves the overall mean at {outside} of {len(rows)} points.",
        caption=f"{title}. {band} with {share} confidence ({curve.target}). {shows}{remark}",
        size=_size(column, len(rows)),
    )


def _profile_figure(profile: Profile, column: Column, key: str, claimed: bool) -> Iterator[Picture]:
    rows, remark = select_points(profile, column)
    if not rows:
        return
    part = take_points(profile, rows, "points", "contrast", "chance", "mass")
    peak = max(rows, key=profile.contrast.__getitem__)
    title = f"Where along {shown(column.name)} the distribution differs"
    limit = "grey marks" if column.kind == "categorical" else "dashed limit"
    shows = "It is shown to differ where it does." if claimed else "A difference is not shown anywhere."
    yield draw_picture(
        partial(plot_profile, part, labels=column.labels),
        key=key,
        title=title,
        description=f"The difference is largest {_format_point(profile.points[peak], column)}: "
        f"{digits(profile.contrast[peak])}, with a limit under independence of "
        f"{digits(profile.chance[peak])}. It is above the limit at {len(part.above)} of {len(rows)} points.",
        caption=f"{title}: the rows at each value against all rows, spread and shape included. Random "
        f"pairings exceed the {limit} anywhere in {percent(1.0 - profile.confidence_level)} of samples. "
        f"{shows}{remark}",
        size=_size(column, len(rows)),
    )
