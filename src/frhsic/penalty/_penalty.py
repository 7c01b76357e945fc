"""The fairness notion: the dependence of what, on which columns, within which rows."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from frhsic._checks import ArgumentError, is_number
from frhsic._text import list_names
from frhsic.data import Label, Sensitive, check_length, split_labels
from frhsic.dependence import Dependence

On: TypeAlias = Literal["representation", "prediction", "probability"]
Side: TypeAlias = Literal["both", "z", "s"]
Values: TypeAlias = Tensor | None  # None where no term looks at it
SensitiveLike: TypeAlias = Tensor | Sensitive

# A label of y with fewer rows in a batch is left out there: the published equal-opportunity training leaves
# out batches with 10 positives or fewer.
MIN_ROWS: Final = 11

_NONE = torch.zeros(0, dtype=torch.long)


class PenaltyValue(NamedTuple):
    """The ``total`` of a penalty, the value of each term, and the labels of y left out."""

    total: Tensor
    values: tuple[Tensor, ...]
    skipped: tuple[tuple[Label, int], ...]

    @classmethod
    def add_up(
        cls, factors: Sequence[float], values: Sequence[Tensor], skipped: Sequence[tuple[Label, int]]
    ) -> PenaltyValue:
        """Return the sum of the terms, of which there is at least one, times their factors."""
        both = zip(factors, values, strict=True)
        scaled = [value if factor == 1.0 else factor * value for factor, value in both]
        return cls(reduce(add, scaled), tuple(values), tuple(skipped))


class Batch(NamedTuple):
    """The rows on which a penalty is evaluated; ``rows`` are those of each label of y, if it is needed."""

    z: Tensor | None
    prediction: Tensor | None
    s: Sensitive
    rows: Mapping[Label, Tensor]
    weights: Tensor | None


class _Penalty(nn.Module, ABC):
    """What one penalty and a sum of penalties share."""

    needs_y: bool
    """Whether some term is restricted to labels of y."""
    pairs: list[tuple[float, Penalty]]
    """The terms as the user wrote them, with their factors."""

    @abstractmethod
    def _parts(self, labels: Collection[Label]) -> Iterator[tuple[float, Penalty]]:
        """Yield factors and penalties with at most one label of y and one joint set of columns each."""

    def forward(
        self, z: Values, prediction: Values, s: SensitiveLike, y: Values = None, weights: Values = None
    ) -> Tensor:
        """Return the penalty, shape ``(...)``: the leading dimensions of z and prediction.

        Parameters
        ----------
        z : Tensor of shape (..., n, d) or None
            The representation; may be None where no term looks at it.
        prediction : Tensor of shape (..., n, k) or None
            What the head returns: logits, or values of a regression; may be None where no term looks at it.
        s : Tensor of shape (n,), (n, q) or Sensitive
        y : Tensor of shape (n,), optional
            Labels or codes of classes, where a term is given y.
        weights : Tensor of shape (n,), optional
        """
        value = self.evaluate(z, prediction, s, y, weights)
        if value.skipped:
            few = f"{len(value.skipped)} labels of y with fewer than {MIN_ROWS} rows add nothing here"
            labels = list_names([label for label, _ in value.skipped])
            warnings.warn(f"{few}: {labels}. Use larger batches.", stacklevel=2)
        return value.total

    def evaluate(
        self, z: Values, prediction: Values, s: SensitiveLike, y: Values = None, weights: Values = None
    ) -> PenaltyValue:
        """Return the same as a call, with the value of each term and what was left out, and no warning."""
        return self._evaluate(self._batch(z, prediction, s, y, weights), None)

    def excess(
        self,
        z: Values,
        prediction: Values,
        s: SensitiveLike,
        y: Values,
        weights: Values,
        generator: torch.Generator,
        *,
        scale_free: bool = True,
    ) -> PenaltyValue:
        """Return what a budget is about: a value that no factor of z changes and independence makes zero.

        Z and predictions are centred and divided by their spread (probabilities are not), unless
        ``scale_free=False``, and a measure that is above zero for independent rows gives its
        :meth:`~frhsic.dependence.Dependence.beyond_chance`; weights belong to S and travel with it.
        """
        return self._evaluate(self._batch(z, prediction, s, y, weights), generator, scale_free=scale_free)

    def _evaluate(
        self, batch: Batch, generator: torch.Generator | None, *, scale_free: bool = False
    ) -> PenaltyValue:
        factors, values, skipped = [], [], []
        for factor, part in self._parts(batch.rows):
            measure, label = part.dependence, part.label
            chosen = part._choose(batch, scale_free=scale_free)
            if label is not None and part._too_few(chosen.n):
                skipped.append((label, chosen.n))
                value = chosen.z.new_zeros(chosen.z.shape[:-2])
            elif generator is None or measure.debiased:
                value = measure(chosen.z, chosen.s, chosen.weights)
            else:
                order = torch.randperm(chosen.n, generator=generator).to(chosen.z.device)
                value = measure.beyond_chance(chosen.z, chosen.s, order, chosen.weights)
            factors.append(factor)
            values.append(value)
        return PenaltyValue.add_up(factors, values, skipped)

    def calibrate(
        self,
        z: Values,
        prediction: Values,
        s: SensitiveLike,
        y: Values = None,
        generator: torch.Generator | None = None,
        *,
        weights: Values = None,
        freeze: bool = False,
        side: Side = "both",
        scale_free: bool = False,
    ) -> PenaltySum:
        """Return this penalty with every data-dependent scale fixed on these rows, a term for each label.

        See :meth:`frhsic.dependence.Dependence.calibrate` for ``freeze`` and ``side``. Labels with too few
        rows keep their rules. ``scale_free`` is for what :meth:`excess` evaluates.
        """
        batch = self._batch(z, prediction, s, y, weights)
        pairs = []
        for factor, part in self._parts(batch.rows):
            chosen = part._choose(batch, scale_free=scale_free)
            if part.label is None or not part._too_few(chosen.n):
                fixed = part.dependence.calibrate(
                    chosen.z, chosen.s, generator, weights=chosen.weights, freeze=freeze, side=side
                )
                part = Penalty(fixed, on=part.on, given=part.given, columns=part.columns)
            pairs.append((factor, part))
        return sum_terms(pairs)

    def __add__(self, other: _Penalty) -> PenaltySum:
        if not isinstance(other, _Penalty):
            return NotImplemented
        return sum_terms([*self.pairs, *other.pairs])

    def __mul__(self, factor: float) -> PenaltySum:
        if not is_number(factor):
            return NotImplemented
        return sum_terms([(float(factor) * own, term) for own, term in self.pairs])

    __rmul__ = __mul__

    def __radd__(self, other: object) -> _Penalty:
        return self if other == 0 else NotImplemented  # the start of sum([...])

    def relabel(self, codes: Mapping[Any, float], *, each: bool = False) -> PenaltySum:
        """Return this penalty with the labels of ``given`` replaced by their codes.

        With ``each``, a term that is given ``"y"`` gets all codes, whether or not a batch has rows of them.
        """
        pairs = []
        for factor, term in self.pairs:
            given = term.given
            if isinstance(given, Mapping):
                unknown = [label for label in _labels(given) if label not in codes]
                if unknown:
                    must = f"name classes of y, among {list_names(list(codes))}"
                    raise ArgumentError("given", must, list_names(unknown), "Correct the label.")
                given = {"y": [codes[label] for label in _labels(given)]}
            elif given == "y" and each:
                given = {"y": list(codes.values())}
            pairs.append((factor, Penalty(term.dependence, on=term.on, given=given, columns=term.columns)))
        return sum_terms(pairs)

    def _batch(self, z: Values, prediction: Values, s: SensitiveLike, y: Values, weights: Values) -> Batch:
        s = as_sensitive(s)
        if not self.needs_y:
            return Batch(z, prediction, s, {}, weights)
        if y is None:
            must = "be passed to a penalty that is given labels of y"
            raise ArgumentError("y", must, None, "Pass the labels.")
        check_length("y", len(y), len(s), "s")
        rows = {one.value: one.rows for one in split_labels(y).kept}
        return Batch(z, prediction, s, rows, weights)


class Penalty(_Penalty):
    """The dependence that training lowers: of the representation or the prediction, on S, perhaps given y.

    Without ``given`` it is the notion of demographic parity, D(Z, S); ``given="y"`` is that of equalized
    odds, the mean of D(Z, S | y) over the labels of y; ``given={"y": 1}`` that of equal opportunity, D(Z, S |
    y = 1) as in the paper's appendix "Equal Opportunity and multiple sensitive attributes". Penalties add up
    and scale: ``Penalty(a) + 0.5 * Penalty(b)``.

    Parameters
    ----------
    dependence : Dependence
        A differentiable measure.
    on : {"representation", "prediction", "probability"}, default="representation"
        Z, which binds every head; what the head returns (logits; values of a regression); or the probability
        that a classifier makes of its logits, which no stretching of their tails can hide.
    given : None, "y" or {"y": label or list of labels}, default=None
        Labels of y within which the dependence is taken: of "y", those among the rows at hand (in training,
        among all rows). A label with fewer than 11 rows in a batch adds nothing there (the mean is still over
        all labels); the training history counts it, a call warns.
    columns : None or list, default=None
        None takes all sensitive columns jointly. A list of names is the sum over these columns, one by one;
        an entry that is itself a tuple of names is joint: ``[("age", "income"), "sex"]``.

    Examples
    --------
    >>> import torch
    >>> from frhsic import HSIC
    >>> z, s = torch.randn(64, 3, requires_grad=True), torch.randn(64)
    >>> penalty = Penalty(HSIC()) + 0.5 * Penalty(HSIC(), on="prediction")
    >>> penalty(z, z.sum(dim=1, keepdim=True), s).backward()
    """

    dependence: Dependence

    def __init__(
        self,
        dependence: Dependence,
        *,
        on: On = "representation",
        given: Literal["y"] | Mapping[str, Any] | None = None,
        columns: Sequence[str | tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(dependence, Dependence):
            raise TypeError(
                f"'dependence' must be a measure. Got {type(dependence).__name__}. "
                "Take one of frhsic.dependence, such as HSIC()."
            )
        name = type(dependence).__name__
        if not dependence.differentiable:
            got, fix = f"{name}, a measure for reports", "Take another measure, such as HSIC()."
            raise ArgumentError("dependence", "be differentiable", got, fix)
        if not dependence.bounded_below and on != "probability":  # which is bounded itself
            why = "training would inflate what it looks at without end"
            got = f"{name}, an unbounded kernel and estimator='unbiased': {why}"
            fix = "Use estimator='biased' or normalized=True."
            raise ArgumentError("dependence", "be bounded below", got, fix)
        if on not in ("representation", "prediction", "probability"):
            must = "be 'representation', 'prediction' or 'probability'"
            raise ArgumentError("on", must, repr(on), "Leave it out for the first.")
        _check_given(given)
        _check_columns(columns)
        self.dependence = dependence
        self.on: On = on
        self.given = given
        self.needs_y = given is not None
        # Read at every step: looked up once.
        several = _labels(given) if isinstance(given, Mapping) else []
        self.label: Label | None = several[0] if len(several) == 1 else None
        self.columns = None
        if columns is not None:
            self.columns = tuple(entry if isinstance(entry, str) else tuple(entry) for entry in columns)

    def extra_repr(self) -> str:
        """Return the arguments, for the printed form."""
        return f"on={self.on!r}, given={self.given!r}, columns={self.columns!r}"

    @property
    def pairs(self) -> list[tuple[float, Penalty]]:  # type: ignore[override]
        """The penalty itself, with the factor 1."""
        return [(1.0, self)]

    def _parts(self, labels: Collection[Label]) -> Iterator[tuple[float, Penalty]]:
        if self.columns is None or (len(self.columns) == 1 and isinstance(self.columns[0], tuple)):
            sets = [self.columns]
        else:
            sets = [((name,) if isinstance(name, str) else name,) for name in self.columns]
        if self.given is None:
            chosen: list[Label | None] = [None]
        elif isinstance(self.given, Mapping):
            chosen = list(_labels(self.given))
        else:
            chosen = list(labels)
        if len(sets) == len(chosen) == 1 and self.columns == sets[0] and self.given != "y":
            yield 1.0, self
            return
        for columns in sets:
            for label in chosen:
                given = None if label is None else {"y": label}
                yield 1.0 / len(chosen), Penalty(self.dependence, on=self.on, given=given, columns=columns)

    def _too_few(self, n: int) -> bool:
        """Return whether a label of y with n rows is left out."""
        return n < max(MIN_ROWS, self.dependence.min_rows)

    def _choose(self, batch: Batch, *, scale_free: bool) -> _Chosen:
        """Return what the dependence of a part is called with."""
        s, weights = batch.s, batch.weights
        of = batch.z if self.on == "representation" else batch.prediction
        if of is None:
            name = "z" if self.on == "representation" else "prediction"
            raise ArgumentError(name, f"be passed to a penalty on the {self.on}", None, "Pass it.")
        if of.ndim < 2:
            of = of.reshape(-1, 1)
        if self.on == "probability":
            of = of.sigmoid() if of.shape[-1] == 1 else of.softmax(dim=-1)
        elif scale_free:
            of = _unit(of)
        if self.columns is not None:
            unknown = [name for name in self.columns[0] if name not in s.names]
            if unknown:
                must = f"be among the sensitive columns {list(s.names)}"
                fix = "Correct the names; an unnamed column is called 's', several 's0', 's1', ..."
                raise ArgumentError("columns", must, unknown, fix)
            s = s.columns(self.columns[0])
        chosen = _Chosen(of, s, weights, len(s))
        if self.label is None:
            return chosen
        chosen.check_rows()
        rows = batch.rows.get(self.label, _NONE).to(of.device)
        if weights is not None:
            rows = rows[weights[rows] > 0]
        return _Chosen(of[..., rows, :], s[rows], None if weights is None else weights[rows], len(rows))


class PenaltySum(_Penalty):
    """Penalties with factors, non-negative and finite, as ``a + 0.5 * b`` makes them."""

    def __init__(self, terms: Sequence[Penalty], factors: Sequence[float]) -> None:
        super().__init__()
        if not terms or len(terms) != len(factors) or not all(isinstance(term, Penalty) for term in terms):
            got = f"{len(terms)} terms and {len(factors)} factors"
            raise ArgumentError("terms", "be penalties with one factor each", got, "Write a + 0.5 * b.")
        if not all(0 <= factor < math.inf for factor in factors):
            fix = "A negative factor would reward dependence."
            raise ArgumentError("factors", "be non-negative numbers", list(factors), fix)
        self.terms = nn.ModuleList(terms)
        self.factors = tuple(float(factor) for factor in factors)
        self.needs_y = any(term.needs_y for term in terms)
        self.pairs = list(zip(self.factors, terms, strict=True))  # a ModuleList is slow to go through

    def extra_repr(self) -> str:
        """Return the factors, for the printed form."""
        return f"factors={self.factors}"

    def _parts(self, labels: Collection[Label]) -> Iterator[tuple[float, Penalty]]:
        for factor, term in self.pairs:
            for own, part in term._parts(labels):
                yield factor * own, part


def sum_terms(pairs: Sequence[tuple[float, Penalty]]) -> PenaltySum:
    """Return the sum of penalties, each times its factor."""
    return PenaltySum([term for _, term in pairs], [factor for factor, _ in pairs])


def _unit(x: Tensor) -> Tensor:
    """Return centred rows divided by their spread, the root of tr Cov(x), inside the graph."""
    rest = x - x.mean(dim=-2, keepdim=True)
    spread = rest.square().sum(dim=-1).mean(dim=-1)
    # What centring leaves of a constant is rounding, which must not be blown up to a spread of one.
    info = torch.finfo(x.dtype)
    least = x.detach().square().sum(dim=-1).mean(dim=-1) * (32.0 * info.eps) ** 2 + info.tiny**0.5
    return rest / torch.maximum(spread, least).sqrt()[..., None, None]


class _Chosen(NamedTuple):
    z: Tensor
    s: Sensitive
    weights: Tensor | None
    n: int

    def check_rows(self) -> None:
        n = self.z.shape[-2]
        check_length("s", len(self.s), n, "z")
        check_length("weights", n if self.weights is None else len(self.weights), n, "z")


def _check_given(given: Any) -> None:
    if given is not None and given != "y" and not (isinstance(given, Mapping) and list(given) == ["y"]):
        fix = "Write given='y' for equalized odds, given={'y': 1} for equal opportunity."
        raise ArgumentError("given", "be None, 'y' or {'y': label}", repr(given), fix)
    labels = _labels(given) if isinstance(given, Mapping) else [""]
    if not labels or not all(isinstance(label, (str, bool, int, float)) for label in labels):
        got = "none, or something else"
        raise ArgumentError("given", "name a label or a list of labels", got, "Write given={'y': 1}.")


def _check_columns(columns: Any) -> None:
    if columns is None:
        return
    entries = columns if isinstance(columns, (list, tuple)) and columns else [None]
    names = [name for e in entries for name in (e if isinstance(e, (list, tuple)) and e else [e])]
    if not all(isinstance(name, str) for name in names):
        must = "be a list of names, or of tuples of names, or None"
        raise ArgumentError("columns", must, repr(columns), "Write columns=['age'].")
    if len(set(map(str, columns))) < len(columns):
        raise ArgumentError("columns", "be distinct", repr(columns), "Scale a penalty to weigh it more.")


def _labels(given: Mapping[str, Any]) -> list[Label]:
    label = given["y"]
    if isinstance(label, (np.ndarray, np.generic)):
        label = label.tolist()
    if isinstance(label, (set, frozenset)):
        return sorted(label, key=str)
    return list(label) if isinstance(label, (list, tuple)) else [label]


def as_sensitive(s: SensitiveLike) -> Sensitive:
    """Return S with names of its columns."""
    if isinstance(s, Sensitive):
        return s
    if not isinstance(s, Tensor):
        raise TypeError(
            f"'s' must be a tensor or a Sensitive. Got {type(s).__name__}. "
            "Convert arrays and frames with frhsic.data.to_sensitive."
        )
    return Sensitive.of(s)
