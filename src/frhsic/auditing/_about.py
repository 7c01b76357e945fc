"""What is audited, in the words of the person who asks: shown and recorded, not checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from frhsic._checks import ArgumentError
from frhsic._text import shown
from frhsic.auditing._parts import About

if TYPE_CHECKING:
    from frhsic.auditing._results import Audit

_LONGEST: Final = 500


def read_about(about: Mapping[str, object] | About | None) -> About:
    """Return what is said about the audit, as single lines of bounded length."""
    if about is None or isinstance(about, About):
        return about or About()
    known = [field.name for field in fields(About)]
    unknown = [str(name) for name in about if name not in known]
    if unknown:
        must = f"have keys among {', '.join(known)}"
        raise ArgumentError("about", must, repr(unknown[0][:40]), "Leave it out, or correct its name.")
    said = {name: shown(str(value).strip(), _LONGEST) for name, value in about.items() if value is not None}
    return About(**{name: text for name, text in said.items() if text})


def list_facts(audit: Audit) -> dict[str, str]:
    """Return what the caller said about an audit, and the names of the score and the outcome."""
    found = {
        "model": audit.about.model_name,
        "score": None if audit.score is None else audit.score.name,
        "outcome": audit.outcome,
        "owner": audit.about.owner,
        "purpose": audit.about.purpose,
        "population": audit.about.population,
    }
    return {name: text for name, text in found.items() if text is not None}
