"""Audits: the dependence of a score or a representation on sensitive columns, in numbers."""

from frhsic.auditing._audit import audit
from frhsic.auditing._measures import MEASURES, AuditMeasure, Estimate
from frhsic.auditing._results import (
    Attribute,
    Audit,
    Claim,
    Column,
    LabelDependence,
    Outcome,
    Recovery,
    Representation,
    Transfer,
)
from frhsic.auditing._schema import schema
from frhsic.auditing._source import audit_source

__all__ = [
    "MEASURES",
    "Attribute",
    "Audit",
    "AuditMeasure",
    "Claim",
    "Column",
    "Estimate",
    "LabelDependence",
    "Outcome",
    "Recovery",
    "Representation",
    "Transfer",
    "audit",
    "audit_source",
    "schema",
]
