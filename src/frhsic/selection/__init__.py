"""Choose the strength of a penalty from models judged on held-out rows."""

from frhsic.selection._rules import Point, first_not_rejected, last_equivalent

__all__ = ["Point", "first_not_rejected", "last_equivalent"]
