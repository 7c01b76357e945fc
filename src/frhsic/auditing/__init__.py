"""Audits: the dependence of a score or a representation on sensitive columns, in numbers."""

from frhsic.auditing._about import list_facts as list_facts
from frhsic.auditing._audit import audit
from frhsic.auditing._audit import measure_limits as measure_limits
from frhsic.auditing._compare import compare
from frhsic.auditing._comparison import SCHEMA_OF_COMPARISON as SCHEMA_OF_COMPARISON
from frhsic.auditing._comparison import Comparison as Comparison
from frhsic.auditing._comparison import NumberChange as NumberChange
from frhsic.auditing._limits import DECISION_MEASURE as DECISION_MEASURE
from frhsic.auditing._limits import ENDS as ENDS
from frhsic.auditing._limits import OUTCOME_MEASURES as OUTCOME_MEASURES
from frhsic.auditing._limits import limit_sentence as limit_sentence
from frhsic.auditing._markdown import make_markdown as make_markdown
from frhsic.auditing._measures import MEASURES, AuditMeasure
from frhsic.auditing._parts import About as About
from frhsic.auditing._parts import Claim, Estimate
from frhsic.auditing._parts import Column as Column
from frhsic.auditing._parts import Decision as Decision
from frhsic.auditing._parts import ErrorRates as ErrorRates
from frhsic.auditing._parts import LabelDependence as LabelDependence
from frhsic.auditing._parts import Limit as Limit
from frhsic.auditing._parts import Outcome as Outcome
from frhsic.auditing._parts import Recovery as Recovery
from frhsic.auditing._parts import Region as Region
from frhsic.auditing._parts import Representation as Representation
from frhsic.auditing._parts import Transfer as Transfer
from frhsic.auditing._privacy import MIN_ROWS_SHOWN as MIN_ROWS_SHOWN
from frhsic.auditing._privacy import shown_points as shown_points
from frhsic.auditing._record import Record as Record
from frhsic.auditing._results import Attribute, Audit
from frhsic.auditing._results import list_numbers as list_numbers
from frhsic.auditing._schema import schema
from frhsic.auditing._source import audit_source
from frhsic.auditing._tiles import Tile as Tile
from frhsic.auditing._tiles import make_tiles as make_tiles
from frhsic.auditing._verify import TOLERANCE as TOLERANCE
from frhsic.auditing._verify import Verification as Verification
from frhsic.auditing._verify import find_problems as find_problems
from frhsic.auditing._verify import read_record, verify

__all__ = [
    "MEASURES",
    "Attribute",
    "Audit",
    "AuditMeasure",
    "Claim",
    "Estimate",
    "audit",
    "audit_source",
    "compare",
    "read_record",
    "schema",
    "verify",
]
