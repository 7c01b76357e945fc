"""Audits: the dependence of a score or a representation on sensitive columns, in numbers."""

from frhsic.auditing._audit import audit
from frhsic.auditing._decisions import Decision as Decision
from frhsic.auditing._decisions import Region as Region
from frhsic.auditing._measures import MEASURES, AuditMeasure, Estimate
from frhsic.auditing._results import Attribute, Audit, Claim
from frhsic.auditing._results import Column as Column
from frhsic.auditing._results import LabelDependence as LabelDependence
from frhsic.auditing._results import Outcome as Outcome
from frhsic.auditing._results import Recovery as Recovery
from frhsic.auditing._results import Representation as Representation
from frhsic.auditing._results import Transfer as Transfer
from frhsic.auditing._schema import schema
from frhsic.auditing._source import audit_source

__all__ = [
    "MEASURES",
    "Attribute",
    "Audit",
    "AuditMeasure",
    "Claim",
    "Estimate",
    "audit",
    "audit_source",
    "schema",
]
