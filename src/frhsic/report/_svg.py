"""Figures as SVG elements of an HTML report: its colours, its fonts, and no identifier twice."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from frhsic.report._plots import CHANCE, MAIN, SECOND, THIRD

# The colour of text and axes while drawing: in the report it becomes the colour of the text around it.
INK = "#010203"
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: the browser has the letters that matplotlib's font lacks
    "svg.hashsalt": "frhsic",  # the same figure gives the same bytes
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.7,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": True,
}
_BY_HEX = {
    INK.lower(): "currentColor",
    MAIN.lower(): "var(--main)",
    SECOND.lower(): "var(--second)",
    THIRD.lower(): "var(--third)",
    CHANCE.lower(): "var(--chance)",
}
_HEX = re.compile("|".join(_BY_HEX), re.IGNORECASE)
_FONT = re.compile(r"(?<=px )'[^;]*?(?=;|$)")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


class Picture(NamedTuple):
    """A figure and its caption."""

    svg: Markup
    caption: str


def draw_picture(
    draw: Callable[..., object],
    *,
    key: str,
    title: str,
    description: str,
    caption: str,
    size: tuple[float, float] = (4.7, 3.3),
) -> Picture:
    """Return what ``draw(ax=)`` draws as an SVG element; ``key`` sets its identifiers apart from others."""
    buffer = io.BytesIO()
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # it is measured, not drawn, here
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(ax=figure.subplots())
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314 our own figure, not a file from outside
    for element in list(root.iter()):
        for child in list(element):
            if _local(child.tag) in ("metadata", "style"):
                element.remove(child)  # a style here would hold for the whole report
        element.tag = _local(element.tag)
        element.tail = None
        if not (element.text or "").strip():
            element.text = None
        attributes = {_local(name): value for name, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib |= {name: _rewrite(name, value, key) for name, value in attributes.items()}
    for name in ("width", "height", "version"):  # as wide as the report makes it
        root.attrib.pop(name, None)
    root.attrib |= {"class": "figure", "role": "img", "aria-labelledby": f"{key}-title {key}-desc"}
    for tag, words in (("desc", description), ("title", title)):
        element = ElementTree.Element(tag, {"id": f"{key}-{tag}"})
        element.text = words
        root.insert(0, element)
    markup = Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704 the serializer has escaped it
    return Picture(markup, caption)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _rewrite(name: str, value: str, key: str) -> str:
    if name == "id":
        return f"{key}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{key}-{value[1:]}"
    value = _REFERENCE.sub(rf"url(#{key}-\1)", value)
    if name == "style":
        value = _FONT.sub("var(--sans)", _HEX.sub(lambda found: _BY_HEX[found[0].lower()], value))
    return value
