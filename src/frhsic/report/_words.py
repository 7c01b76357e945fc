"""The words of the report in one language, and what each number means and does not mean."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, NamedTuple

from frhsic._text import join_words, shown
from frhsic.auditing import Attribute, Audit, AuditMeasure


class Meaning(NamedTuple):
    """A number's title, what it means and what it does not; ``{s}`` is the attribute, ``{z}`` the subject."""

    title: str
    means: str
    not_means: str

    @classmethod
    def of_measure(cls, measure: AuditMeasure) -> Meaning:
        """Return the meaning of a measure of the audit."""
        return cls(measure.title[:1].upper() + measure.title[1:], measure.means, measure.not_means)

    def fill(self, found: Attribute, audit: Audit, label: str = "") -> Meaning:
        """Return the texts for one attribute, and one label of the outcome."""
        z = f"the {audit.subject}"
        s = join_words([shown(name) for name in found.names], 3)
        return Meaning(*(text.format(s=s, z=z, label=shown(label)) for text in self))


def _read(language: str) -> dict[str, Any]:
    return tomllib.loads((files("frhsic.report") / "text" / f"{language}.toml").read_text("utf-8"))


TEXT = _read("en")
TEST, EQUALIZED_ODDS, WITHIN_LABEL, CALIBRATION, DECISION, RECOVERY, TRANSFER = (
    Meaning(**TEXT["meaning"][name])
    for name in (
        "test",
        "equalized_odds",
        "within_label",
        "calibration",
        "decision",
        "recovery",
        "transfer",
    )
)
BOUNDS: dict[str, str] = TEXT["bounds"]
KINDS: dict[str, str] = TEXT["kinds"]
