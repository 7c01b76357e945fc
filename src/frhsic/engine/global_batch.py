"""The penalty of the rows that all processes hold together: sums of features are added up over processes."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.collectives import all_rows, all_sum, n_processes
from frhsic.data import Sensitive
from frhsic.kernels import Kernel, default_kernel
from frhsic.penalty import Batch, Penalty, PenaltySum, PenaltyValue, SensitiveLike, Side, Values, as_sensitive
from frhsic.sketching import FeatureHSIC

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Rows of all processes on which scales are fixed; a median looks at 2,000 of them.
_MOST = 16_384


class GlobalBatch(nn.Module):
    """A penalty of the rows that all processes of ``torch.distributed`` hold together.

    FeatureHSIC of a batch is a function of sums over its rows. Each process adds up its own, the sums are
    added up over processes (:func:`frhsic.collectives.all_sum`), and every process gets the value
    that one process would have on the union of the rows; its gradient, too, once gradients are averaged, as
    ``DistributedDataParallel`` does. Where they are added up instead, divide the objective by the number of
    processes. A process may have any number of rows, also none.

    Parameters
    ----------
    penalty : Penalty or sum of penalties
        All of FeatureHSIC.
    group : ProcessGroup, optional
        The default group if None. Without one there is one process.

    Notes
    -----
    All processes call :meth:`calibrate` and the penalty together, with weights or without. Scales must be
    calibrated; ``"scale-free"`` stays inside the graph, and is the scale of the global batch.

    Examples
    --------
    >>> z, s = torch.randn(64, 3, requires_grad=True), torch.randn(64)
    >>> penalty = GlobalBatch(Penalty(FeatureHSIC())).calibrate(z, None, s)
    >>> penalty(z, None, s).backward()
    """

    def __init__(self, penalty: Penalty | PenaltySum, *, group: ProcessGroup | None = None) -> None:
        super().__init__()
        if not isinstance(penalty, (Penalty, PenaltySum)):
            raise TypeError(
                f"'penalty' must be a Penalty. Got {type(penalty).__name__}. Write Penalty(FeatureHSIC())."
            )
        for _, term in penalty.pairs:
            if type(term.dependence) is not FeatureHSIC:
                must = "be of FeatureHSIC: a sum over rows can be added up over processes"
                fix = "Write Penalty(FeatureHSIC(...))."
                raise ArgumentError("penalty", must, type(term.dependence).__name__, fix)
        self.penalty = penalty
        self.group = group
        self._categories: Mapping[str, Tensor] | None = None

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
    ) -> GlobalBatch:
        """Return this penalty with its scales fixed, the same in all processes, on rows of all of them.

        All rows are taken if there are at most 16,384, else as many random ones. See
        :meth:`frhsic.dependence.Dependence.calibrate` for ``freeze`` and ``side``.
        """
        s = as_sensitive(s)
        self._check_columns(s)
        by_equality = self._by_equality(s)
        # In the order of the columns, which all processes share: each column may be an exchange.
        categories = {name: self._union(s.columns([name])) for name in s.names if name in by_equality}
        if generator is not None:
            # One seed for all, from the generator of the first process.
            own = torch.randint(2**62, (1,), generator=generator).to(s.values.device)
            generator = torch.Generator().manual_seed(int(all_rows(own, self.group)[0]))
        n = torch.tensor(len(s), device=s.values.device)
        total = int(all_sum(n, self.group))
        rows = torch.arange(len(s), device=s.values.device)
        if total > _MOST:
            mixed = torch.randperm(len(s), generator=torch.Generator().manual_seed(0))
            rows = mixed[: -(-_MOST * len(s) // total)].to(rows)
        values = all_rows(s.values[rows], self.group)
        union = Sensitive(values, s.names, s.kinds, s.categories)
        z, prediction = (None if x is None else self._gather(x, rows) for x in (z, prediction))
        y, weights = (None if x is None else all_rows(x[rows], self.group) for x in (y, weights))
        fixed = self.penalty.calibrate(
            z, prediction, union, y, generator, weights=weights, freeze=freeze, side=side
        )
        other = GlobalBatch(fixed, group=self.group)
        other._categories = categories
        return other

    def forward(
        self, z: Values, prediction: Values, s: SensitiveLike, y: Values = None, weights: Values = None
    ) -> Tensor:
        """Return the penalty of the global batch, the same in all processes; arguments as for a Penalty."""
        return self.evaluate(z, prediction, s, y, weights).total

    def evaluate(
        self, z: Values, prediction: Values, s: SensitiveLike, y: Values = None, weights: Values = None
    ) -> PenaltyValue:
        """Return the total, the value of each term, and the labels of y with too few rows in all."""
        if self._categories is None:
            must = "be calibrated, so that all processes have the same scales"
            fix = "Call penalty.calibrate(z, prediction, s) in all processes first."
            raise ArgumentError("penalty", must, "rules", fix)
        s = as_sensitive(s)
        batch = Batch(z, prediction, s, {}, weights)
        if len(s):  # a process without rows has no labels
            batch = self.penalty._batch(z, prediction, s, y, weights)
        with torch.autocast(s.values.device.type, enabled=False):  # bfloat16 has too few digits for centring
            return self._evaluate(batch)

    def _evaluate(self, batch: Batch) -> PenaltyValue:
        parts = [self._part(factor, part, batch) for factor, part in self.penalty._parts(batch.rows)]
        measures = self._bind(parts)
        pairs = zip(measures, parts, strict=True)
        moments = [measure._moments(part.z, part.s, part.w) for measure, part in pairs]
        # Without weights both sums are the same, and the biased form needs only one.
        apart = [batch.weights is not None and measure.debiased for measure in measures]
        flat = [part.n_rows for part in parts]
        for each, both in zip(moments, apart, strict=True):
            flat += [x for one in each for x in (one.first, one.second)[: 1 + both]]
        sums = iter(self._add_up(flat))
        counts = [round(next(sums).detach().item()) for _ in parts]
        values, skipped = [], []
        for part, measure, each, both, n in zip(parts, measures, moments, apart, counts, strict=True):
            reduced = []
            for one in each:
                first = next(sums)
                reduced.append(one._replace(first=first, second=next(sums) if both else first))
            label = part.penalty.label
            if label is not None and part.penalty._too_few(n):
                skipped.append((label, n))
                value = part.like.new_zeros(part.like.shape[:-2])
            else:
                least = 4 if measure.debiased else measure.min_rows
                if n < least:
                    must = f"have at least {least} rows in all processes together"
                    raise ArgumentError("z", must, n, "Use larger batches.")
                value = measure.of_moments(reduced).to(part.like.dtype)
            values.append(value)
        return PenaltyValue.add_up([part.factor for part in parts], values, skipped)

    def _part(self, factor: float, part: Penalty, batch: Batch) -> _Part:
        """Return the rows of one term, and one of no weight for each category that s may have anywhere."""
        chosen = part._choose(batch, scale_free=False)
        like = chosen.z.float() if chosen.z.dtype in (torch.bfloat16, torch.float16) else chosen.z
        s = chosen.s
        chosen.check_rows()
        x = s.values.double()
        w = torch.ones_like(x[:, 0]) if chosen.weights is None else chosen.weights.to(x)
        count = (w > 0).sum().to(x)
        ghosts = self._ghosts(s)
        if len(ghosts):
            x = torch.cat((x, ghosts))
            w = torch.cat((w, w.new_zeros(len(ghosts))))
        of = nn.functional.pad(like.double(), (0, 0, 0, len(ghosts)))
        every = Sensitive(x, s.names, s.kinds, s.categories)
        return _Part(factor, part, _measure(part), like, of, every, w, count)

    def _ghosts(self, s: Sensitive) -> Tensor:
        """Return rows of s with every category of any process: features have a column for each."""
        assert self._categories is not None  # noqa: S101
        known = [self._categories.get(name) for name in s.names]
        size = max([len(values) for values in known if values is not None], default=0)
        ghosts = torch.zeros((size, len(known)), dtype=torch.float64, device=s.values.device)
        for j, values in enumerate(known):
            if values is None:
                continue
            values = values.to(ghosts)
            if not bool(torch.isin(s.values[:, j].double(), values).all()):
                must = f"have the categories of '{s.names[j]}' that it had in calibrate"
                fix = "Calibrate on rows of all categories, or pass a Sensitive with its categories."
                raise ArgumentError("s", must, "others", fix)
            ghosts[:, j] = values[0]
            ghosts[: len(values), j] = values
        return ghosts

    def _bind(self, parts: Sequence[_Part]) -> list[FeatureHSIC]:
        """Return the measure of each part with every rule resolved on the global batch."""
        measures = [copy.copy(part.measure) for part in parts]  # a deep copy would cut the graph
        rules: list[tuple[FeatureHSIC, str, Kernel, Tensor, Tensor]] = []
        for measure, part in zip(measures, parts, strict=True):
            measure.kernel_s = measure.kernel_s or default_kernel(part.s.kinds)
            sides = ("kernel_z", measure.kernel_z, part.z), ("kernel_s", measure.kernel_s, part.s.values)
            for name, kernel, x in sides:
                _check_rules(kernel)
                if not (kernel.fixed and kernel.anchored):
                    rules.append((measure, name, kernel, x, part.w))
        if not rules:
            return measures
        sums = [w[:, None] * x for *_, x, w in rules]
        both = self._add_up([w.sum() for *_, w in rules] + [x.sum(dim=-2) for x in sums])
        totals, means = both[: len(rules)], both[len(rules) :]
        means = [mean / total for mean, total in zip(means, totals, strict=True)]
        pairs = zip(rules, means, strict=True)
        squares = [w[:, None] * (x - mean.unsqueeze(-2)).square() for (*_, x, w), mean in pairs]
        variances = self._add_up([x.sum(dim=-2) for x in squares])
        every = zip(rules, totals, means, variances, strict=True)
        for (measure, name, kernel, *_), total, mean, variance in every:
            # Two rows with the mean and the variances of all rows: a rule makes the same of both.
            sd = (variance / total).clamp_min(torch.finfo(torch.float64).tiny).sqrt()
            setattr(measure, name, kernel.bind(torch.stack((mean - sd, mean + sd), dim=-2)))
        return measures

    def _add_up(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sum of each over all processes, in one exchange."""
        total = all_sum(torch.cat([x.reshape(-1) for x in tensors]), self.group)
        parts = total.split([x.numel() for x in tensors])
        return [part.reshape(x.shape) for part, x in zip(parts, tensors, strict=True)]

    def _gather(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return rows of all processes of x ``(..., n, d)``."""
        x = x.unsqueeze(-1) if x.ndim < 2 else x
        return all_rows(x[..., rows, :].movedim(-2, 0), self.group).movedim(0, -2)

    def _union(self, column: Sensitive) -> Tensor:
        """Return the codes that a column has in any process."""
        (labels,) = column.categories or (None,)
        if labels is not None:
            return torch.arange(len(labels), dtype=torch.float64, device=column.values.device)
        return all_rows(column.values.double().unique(), self.group).unique()

    def _by_equality(self, s: Sensitive) -> set[str]:
        """Return the names of the columns that some term compares by equality."""
        names: set[str] = set()
        for _, part in self.penalty.pairs:
            for columns in (s.names,) if part.columns is None else part.columns:
                seen = s.columns((columns,) if isinstance(columns, str) else columns)
                kernel = _measure(part).kernel_s or default_kernel(seen.kinds)
                names |= {seen.names[j] for j in kernel.split_equality(len(seen.names))[0]}
        return names

    def _check_columns(self, s: Sensitive) -> None:
        what = f"{s.names}{s.kinds}{s.categories}{[repr(term) for _, term in self.penalty.pairs]}"
        mark = int.from_bytes(hashlib.sha256(what.encode()).digest()[:7], "big")
        marks = all_rows(torch.tensor([mark], device=s.values.device), self.group)
        if not bool((marks == mark).all()):
            must = "have the same columns, kinds and categories in all processes, and 'penalty' be the same"
            got = f"others in {int((marks != mark).sum())} of {n_processes(self.group)}"
            fix = "Give labels their codes on all rows before these are shared out."
            raise ArgumentError("s", must, got, fix)


class _Part(NamedTuple):
    """One term on the rows of this process; the last rows may be of no weight."""

    factor: float
    penalty: Penalty
    measure: FeatureHSIC
    like: Tensor  # z or the prediction as passed, (..., n, d)
    z: Tensor
    s: Sensitive
    w: Tensor
    n_rows: Tensor


def _measure(penalty: Penalty) -> FeatureHSIC:
    assert isinstance(penalty.dependence, FeatureHSIC)  # noqa: S101
    return penalty.dependence


def _check_rules(kernel: Kernel) -> None:
    """Raise ArgumentError for rules that no sums over rows resolve."""
    for part, _ in kernel.parts():
        if part.row_rule is not None:
            must = "have scales that are numbers, or 'scale-free'"
            call = "Call penalty.calibrate(z, prediction, s, freeze=True) in all processes"
            raise ArgumentError("penalty", must, part.row_rule, f"{call}, on rows of every category.")
