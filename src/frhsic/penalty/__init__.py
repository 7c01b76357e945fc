"""The fairness notion: the dependence of what, on which columns, within which rows."""

from frhsic.penalty._defaults import budget_penalty as budget_penalty
from frhsic.penalty._defaults import default_penalty as default_penalty
from frhsic.penalty._defaults import limit_penalty as limit_penalty
from frhsic.penalty._defaults import score_penalty as score_penalty
from frhsic.penalty._penalty import MIN_ROWS as MIN_ROWS
from frhsic.penalty._penalty import Batch as Batch
from frhsic.penalty._penalty import On as On
from frhsic.penalty._penalty import Penalty
from frhsic.penalty._penalty import PenaltySum as PenaltySum
from frhsic.penalty._penalty import PenaltyValue as PenaltyValue
from frhsic.penalty._penalty import SensitiveLike as SensitiveLike
from frhsic.penalty._penalty import Side as Side
from frhsic.penalty._penalty import Values as Values
from frhsic.penalty._penalty import as_sensitive as as_sensitive

__all__ = ["Penalty"]
