"""The results of an audit: its attributes, and the audit itself with all that it can be turned into."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from frhsic._checks import ArgumentError
from frhsic._text import number
from frhsic.auditing._parts import (
    About,
    Claim,
    Column,
    Decision,
    Estimate,
    Limit,
    Outcome,
    Region,
    Representation,
)
from frhsic.auditing._record import Record, digest
from frhsic.inference import (
    AdjustedCurve,
    Carriers,
    Curve,
    DecisionGaps,
    Interval,
    Profile,
    Result,
    TestResult,
    frame,
    load_report,
)

if TYPE_CHECKING:
    import pandas as pd

    from frhsic.inference.bounds import Certificate

# The form of to_dict(): the number grows when a reader of older ones would misread a newer one.
SCHEMA = "frhsic.audit/3"


class Renderers:
    """What an audit is turned into, and by which function; the module of each one sets it here."""

    release: ClassVar[Callable[[Audit], Audit]]
    sentences: ClassVar[Callable[[Audit], tuple[str, ...]]]
    make_markdown: ClassVar[Callable[[Audit, str], str]]


@dataclass(frozen=True)
class Attribute(Result):
    """The dependence of z on one sensitive column, or on several jointly.

    Attributes
    ----------
    names : tuple of str
    kind : {"continuous", "categorical", "joint"}
    test : TestResult
        Of independence. ``adjusted`` is the p-value to compare with 1 - ``confidence_level``, after the
        correction for all its attributes and questions.
    measures : dict of str to Interval or Estimate
        By the names of ``frhsic.auditing.MEASURES``: "gap" and "gdp" (in units of the score), "gap_worst" (a
        share of rows), "normalized_hsic" and "hsic" (debiased), "distance_correlation", "kernel_hgr". What
        cannot be measured is absent: the gap of a representation, or the distance correlation of continuous
        and categorical columns jointly.
    curve : Curve or None
        The mean score along s, its band at the confidence that the claims need; None when z is a
        representation, or for several columns.
    profile : Profile or None
        None for several columns.
    outcome : Outcome or None
        When y was given.
    cutoffs : DecisionGaps or None
        The gap of decisions at every cut-off; None when z is a representation, or for several columns.
    decisions : tuple of Decision
        At each of the thresholds that were asked for.
    regions : tuple of Region
        The answer about each region that was asked for.
    explained : AdjustedCurve or None
        With factors held equal, where ``given`` was passed.
    carried : Carriers or None
        By which inputs, where ``contributions`` were passed.

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic import audit
    >>> age = np.arange(18.0, 78.0)
    >>> found = audit(age**2, sensitive_features={"age": age}, random_state=0).attribute("age")
    >>> list(found.measures)
    ['gap', 'rank_gap', 'gdp', 'gap_worst', 'normalized_hsic', 'hsic', 'distance_correlation', 'kernel_hgr']
    """

    names: tuple[str, ...]
    kind: Literal["continuous", "categorical", "joint"]
    test: TestResult
    measures: dict[str, Interval | Estimate]
    curve: Curve | None
    profile: Profile | None
    outcome: Outcome | None
    cutoffs: DecisionGaps | None = None
    decisions: tuple[Decision, ...] = ()
    regions: tuple[Region, ...] = ()
    explained: AdjustedCurve | None = None
    carried: Carriers | None = None

    @property
    def name(self) -> str:
        """The columns, in words."""
        return " and ".join(self.names)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain numbers, strings, lists and dictionaries."""
        measures = {name: result.to_dict() for name, result in self.measures.items()}
        return super().to_dict() | {"measures": measures}


@dataclass(frozen=True)
class Audit(Result):
    """The dependence of a score or a representation on sensitive columns, on one sample.

    Attributes
    ----------
    subject : {"score", "representation"}
    n, width : int
        Rows, and columns of z.
    groups : int or None
        Groups of rows that are independent of one another, where rows are not.
    confidence_level : float
        Of every interval and chance, each by itself, and of all claims together. Bands and limits along s
        have a higher confidence, as they say.
    score : Column or None
        The score, described; None for a representation.
    columns : tuple of Column
        The sensitive columns, described.
    attributes : tuple of Attribute
        One by one; ``joint`` is all of them together, when there are several.
    representation : Representation or None
    certificate : Certificate or None
        Of all sensitive columns together; None when rows have weights.
    weighted, trained_on : bool
        Whether rows had weights; whether they were used for training (None if the caller did not say).
    seed : int
        With it as ``random_state`` the same numbers come out again.
    version : str
        Of frhsic.
    claims : tuple of Claim
        Every statement about the population: any is false with probability at most 1 - ``confidence_level``.
    notes : tuple of str
        Warnings first.
    about : About
        Model, owner, purpose and population, as the caller said.
    outcome : str or None
        The name of the outcome.
    limits : tuple of Limit
        Each limit that was asked for, and whether it is shown to be kept.
    repeated : int or None
        Rows with the score and the attributes of another row; None of a sketch.
    left_out : int or None
        Rows that were left out because a column is empty; None where nobody counted them.
    record : Record or None
        Digests of the columns, options and versions: what another person needs to compute it again.

    Examples
    --------
    >>> import numpy as np
    >>> from frhsic import audit
    >>> age = np.arange(18.0, 78.0)
    >>> found = audit(age**2, sensitive_features={"age": age}, random_state=0)
    >>> found.n, found.claims[0].says
    (60, 'depends')
    """

    subject: Literal["score", "representation"]
    n: int
    groups: int | None
    confidence_level: float
    score: Column | None
    width: int
    columns: tuple[Column, ...]
    attributes: tuple[Attribute, ...]
    joint: Attribute | None
    representation: Representation | None
    certificate: Certificate | None
    weighted: bool
    trained_on: bool | None
    seed: int
    version: str
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = ()
    about: About = field(default_factory=About)
    outcome: str | None = None
    limits: tuple[Limit, ...] = ()
    repeated: int | None = None
    left_out: int | None = None
    record: Record | None = None

    @property
    def every(self) -> tuple[Attribute, ...]:
        """The attributes one by one, then all jointly if there are several."""
        return self.attributes if self.joint is None else (*self.attributes, self.joint)

    @cached_property
    def released(self) -> Audit:
        """The audit as it leaves: without numbers of fewer than ten rows, and rounded.

        Records, JSON, reports and Markdown are made of it. A number is rounded to at most a twentieth of its
        interval, whose ends move outwards; a value of an attribute that fewer than ten rows share, so that
        about ten have the rounded value.
        """
        found = Renderers.release(self)
        found.__dict__["released"] = found
        return found

    def attribute(self, name: str) -> Attribute:
        """Return what was found for one sensitive column."""
        for found in self.attributes:
            if found.names == (name,):
                return found
        fix = f"Take one of {', '.join(repr(found.name) for found in self.attributes)}."
        raise ArgumentError("name", "be a sensitive column of this audit", repr(name), fix)

    def find_claims(
        self, question: str, names: tuple[str, ...], label: str | None = None
    ) -> dict[str, Claim]:
        """Return the claims about some attributes, by what they say."""
        key = (question, names, label)
        return {one.says: one for one in self.claims if (one.question, one.attributes, one.label) == key}

    def sentences(self) -> tuple[str, ...]:
        """Return a summary in plain words: a paragraph for each attribute, and what it does not show."""
        return Renderers.sentences(self)

    def __str__(self) -> str:
        return "\n\n".join(self.sentences())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists, in the form of ``frhsic.auditing.schema()``.

        It is made of :attr:`released`. A number that is not finite is None: JSON has none such. So are
        points, means and rates of fewer than ten rows, and those beyond the 1 % and the 99 % quantile of the
        attribute. ``digest`` is the SHA-256 of all of it.
        """
        plain = {"schema": SCHEMA, **finite(super(Audit, self.released).to_dict())}
        return {**plain, "digest": digest(plain)}

    def report(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write it as one HTML file: :func:`frhsic.report.write_report`, with its options.

        Parameters
        ----------
        path : str or path
        **options
            ``title``, ``source``, ``command``, ``date``.
        """
        load_report().write_report(self, path, **options)

    def to_markdown(self) -> str:
        """Return a section for a model card or a pull request, as Markdown.

        It has the title with model and score, the state of each limit, the numbers of each attribute with
        their intervals, what is not shown, and versions, seed and digest. Names stand as text, whatever they
        hold.
        """
        return Renderers.make_markdown(self.released, self.to_dict()["digest"])

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each measure on each attribute."""
        return frame(
            {"attribute": found.name, "measure": name, **_fields(result)}
            for found in self.every
            for name, result in list_numbers(found)
        )


_FIELDS = ("estimate", "low", "high", "plug_in", "chance", "chance_high", "pvalue", "adjusted", "n")


def list_numbers(found: Attribute) -> list[tuple[str, TestResult | Interval | Estimate]]:
    """Return every test and measure on an attribute, by its name in a table."""
    numbers: list[tuple[str, TestResult | Interval | Estimate | None]] = [
        ("independence test", found.test),
        *found.measures.items(),
        *((f"gap of decisions at {number(one.threshold)}", one.gap) for one in found.decisions),
    ]
    if found.outcome is not None:
        numbers.append(("equalized odds test", found.outcome.equalized_odds))
        numbers += [(f"gdp where the outcome is {one.label}", one.gdp) for one in found.outcome.labels]
        numbers.append(("calibration_gap", found.outcome.calibration_gap))
    return [(name, result) for name, result in numbers if result is not None]


def _fields(result: TestResult | Interval | Estimate) -> dict[str, Any]:
    values = {field: value for field, value in result.to_dict().items() if field in _FIELDS}
    return {**dict.fromkeys(_FIELDS), **values}


def finite(value: Any) -> Any:
    """Return a document with None for numbers that are not finite: JSON has none such."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
