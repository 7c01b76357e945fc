"""Audits: the dependence of a score or a representation on sensitive columns, in numbers."""

from frhsic.auditing._audit import audit
from frhsic.auditing._results import (
    SCHEMA,
    Attribute,
    Audit,
    Claim,
    Column,
    Given,
    Measured,
    Outcome,
    Recovered,
    Representation,
    Transfer,
)
from frhsic.auditing._schema import schema
from frhsic.auditing._source import audit_source

__all__ = [
    "SCHEMA",
    "Attribute",
    "Audit",
    "Claim",
    "Column",
    "Given",
    "Measured",
    "Outcome",
    "Recovered",
    "Representation",
    "Transfer",
    "audit",
    "audit_source",
    "schema",
]
