"""Choose a penalty weight or a budget from models judged on validation rows."""

from frhsic.selection._front import matched_point, naup, pareto_front
from frhsic.selection._point import Point
from frhsic.selection._rules import (
    best_within_limit,
    first_not_rejected,
    knee,
    last_equivalent,
    lowest_dependence,
    lowest_dependence_within,
)
from frhsic.selection._rules import find_weakest as find_weakest
from frhsic.selection._search import FrontierSearch
from frhsic.selection._without import Retrained as Retrained
from frhsic.selection._without import retrain_without

__all__ = [
    "FrontierSearch",
    "Point",
    "best_within_limit",
    "first_not_rejected",
    "knee",
    "last_equivalent",
    "lowest_dependence",
    "lowest_dependence_within",
    "matched_point",
    "naup",
    "pareto_front",
    "retrain_without",
]
