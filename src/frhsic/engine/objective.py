"""The objective of a step: the loss, and the penalty with its scales and its own parameters."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.dependence import RecoveredVariance
from frhsic.engine.budget import MOST, Multipliers, divide_by_budgets
from frhsic.engine.meter import Meter, scores_of
from frhsic.engine.nets import Loss, Net, Stack
from frhsic.engine.options import Options
from frhsic.engine.rows import Rows, make_batches
from frhsic.penalty import PenaltySum, PenaltyValue

_MEASURED: Final = 8_192  # rows on which the dependence is measured after every epoch, or more if cheap


class Measured(NamedTuple):
    """What an epoch ends with, for each net.

    ``relative`` is the dependence over that of the unconstrained net; ``of_limit`` that over the budget, or
    the largest measured value over its limit.
    """

    relative: list[float | None]
    of_limit: list[float | None]
    multipliers: list[float | None]


class Objective:
    """Loss and penalty of a net or a stack; values have the shape of the stack, ``()`` for a net."""

    def __init__(
        self, net: Net | Stack, loss: Loss, rows: Rows, options: Options, generator: torch.Generator
    ) -> None:
        self.loss, self.generator = loss, generator
        self.rebuild = options.training.rebuild
        self._of_s: RecoveredVariance | None = None
        if self.rebuild:
            self._spread = _find_spread(rows)
            if rows.s is not None:
                some, w = rows.x[:, :1], rows.weights  # x does not matter
                self._of_s = RecoveredVariance(0).calibrate(some, rows.s, weights=w, side="s")
        # Drawn with or without a penalty, so that every penalty weight sees the same batches.
        child = torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=generator)))
        self.fixed_s = _fix_scales_of_s(net, rows, options, child)  # those of Z are still rules
        self.penalty = self.fixed_s
        self.held: dict[str, Tensor] = {}  # what the scales of Z were last fixed on, for the checkpoint
        critics = [] if self.fixed_s is None else list(self.fixed_s.parameters())
        self.critic: torch.optim.Optimizer | None = None
        if critics:
            self.critic = torch.optim.Adam(critics, lr=options.learning_rate, maximize=True)
        self.multipliers: Multipliers | None = None
        self._lam: float | Tensor = 0.0
        self.budgets: Tensor | None = None
        self.meter: Meter | None = None
        if options.constrained is not None:
            steps = len(make_batches(len(rows), options.batch_size, None, last=options.training.last_batch))
            limits = options.limits
            if options.budgets is not None:
                shares = torch.tensor([1.0, *options.budgets], dtype=torch.float64)
                self.budgets = shares.to(rows.x.device)
            if limits is not None:
                self.meter = Meter(limits, rows if limits.watched is None else limits.watched)
            self.multipliers = Multipliers(
                options.constrained,
                steps,
                options.epochs,
                # What is left of a penalty at a limit may be a hundredth of its unit.
                most=MOST if limits is None else 100.0 * MOST,
                like=rows.x,
            )
            self._block = self._count_cheap_rows(net, rows)
            order = torch.randperm(len(rows), generator=child)[: max(_MEASURED, self._block)]
            self._measured = [order[part] for part in make_batches(len(order), self._block, None)]
        else:
            weights = options.weights
            self._lam = weights[0] if isinstance(net, Net) else torch.tensor(weights).to(rows.x)

    def mean_loss(self, prediction: Tensor, batch: Rows) -> Tensor:
        """Return the weighted mean of the loss."""
        each = self.loss(prediction, batch.y)
        weights = batch.loss_weighting
        return each.mean(dim=-1) if weights is None else (each * weights).mean(dim=-1)

    def cost_of_rebuilding(self, z: Tensor, batch: Rows) -> Tensor:
        """Return the share of the variance of x that z and s miss, times its weight."""
        of_s = None
        if self._of_s is not None and batch.s is not None:
            of_s = self._of_s.targets(batch.s, batch.weights)
        return self.rebuild * missed_share(z, batch.x, of_s, batch.weights, self._spread)

    def evaluate_penalty(
        self, z: Tensor, prediction: Tensor, batch: Rows, generator: torch.Generator | None = None
    ) -> PenaltyValue:
        """Return the penalty, or with a budget its excess over independence."""
        assert self.penalty is not None and batch.s is not None  # noqa: S101, PT018
        if self.multipliers is not None:
            generator = self.generator if generator is None else generator
            # A share must not be had by shrinking; a limit in the unit of the score may.
            share = self.meter is None
            parts = (z, prediction, batch.s, batch.labels, batch.weights)
            return self.penalty.excess(*parts, generator, scale_free=share)
        return self.penalty.evaluate(z, prediction, batch.s, batch.labels, batch.weights)

    def add(self, loss: Tensor, penalty: Tensor) -> Tensor:
        """Return loss + lam * penalty, or with a budget the multiplier's factor in the place of lam."""
        factors = self._lam if self.multipliers is None else self.multipliers.factors
        if isinstance(factors, Tensor):
            return torch.addcmul(loss, factors, penalty)
        return torch.add(loss, penalty, alpha=factors)

    def hold(self, z: Tensor, prediction: Tensor, rows: Rows, index: Tensor) -> None:
        """Fix the scales of Z on these of all rows, until the next call."""
        assert self.fixed_s is not None  # noqa: S101
        self.held = {"z": z.detach(), "prediction": prediction.detach(), "rows": index}
        self.penalty = self._fix_scales_of_z(self.fixed_s, rows)

    def ascend(self, z: Tensor, prediction: Tensor, batch: Rows) -> None:
        """Take one step with the parameters of the penalty, if it has some (an adversary)."""
        if self.critic is None:
            return
        total = self.evaluate_penalty(z.detach(), prediction.detach(), batch).total
        if total.requires_grad:  # not where every label of y had too few rows
            self.critic.zero_grad()
            total.sum().backward()
            self.critic.step()

    @torch.no_grad()
    def update_multipliers(self, net: nn.Module, rows: Rows) -> Measured:
        """Measure every net of a stack and move the multipliers."""
        assert self.multipliers is not None  # noqa: S101
        net.eval()
        if self.meter is None:
            return self._follow_budgets(self.multipliers, self._measure(net, rows, self._measured))
        ratio = self.meter.limits.divide(self.meter.follow(scores_of(net, self.meter.limits.score)))
        unit = None
        if self.multipliers.needs_unit:
            value = self._measure(net, rows, self._measured)
            unit = torch.where(value > 0, value, 1.0)
        self.multipliers.update(ratio, unit)
        return Measured([None] * len(ratio), ratio.tolist(), [*self.multipliers.values])

    def _follow_budgets(self, multipliers: Multipliers, value: Tensor) -> Measured:
        """Take the dependence of each net, the unconstrained one first."""
        assert self.budgets is not None  # noqa: S101
        ratio, limit = divide_by_budgets(value, self.budgets)
        multipliers.update(ratio, limit)
        relative = _divide_by_first(value)
        of_limit = [None] * len(ratio) if relative[0] is None else ratio.tolist()
        return Measured(relative, of_limit, [*multipliers.values])

    def measure_relative(self, nets: Sequence[Net], rows: Rows) -> list[float | None]:
        """Return the dependence of each net on all rows over that of the first."""
        blocks = make_batches(len(rows), self._block, torch.Generator().manual_seed(0))
        return _divide_by_first(self._measure(Stack(nets).eval(), rows, blocks))

    def penalty_of(self, k: int, net: Net | Stack, rows: Rows) -> PenaltySum | None:
        """Return the penalty with the scales and the layers of one net of the stack."""
        if self.fixed_s is None or isinstance(net, Net):
            return self.penalty
        own = copy.deepcopy(self.fixed_s)
        for parameter in own.parameters():
            parameter.data = parameter.data[k]
        return self._fix_scales_of_z(own, rows, k) if self.held else own

    def _fix_scales_of_z(self, penalty: PenaltySum, rows: Rows, k: int | None = None) -> PenaltySum:
        """Return the penalty with the scales of Z of the rows held last, of one net or of the stack."""
        z, prediction = self.held["z"], self.held["prediction"]
        if k is not None:
            z, prediction = z[k], prediction[k]
        batch = rows[self.held["rows"].to(rows.x.device)]
        assert batch.s is not None  # noqa: S101
        free = self.multipliers is not None and self.meter is None
        return penalty.calibrate(
            z, prediction, batch.s, batch.labels, weights=batch.weights, side="z", scale_free=free
        )

    def _count_cheap_rows(self, net: nn.Module, rows: Rows) -> int:
        """Return the number of rows on which the dependence is measured at once."""
        assert self.fixed_s is not None and rows.s is not None  # noqa: S101, PT018
        z, prediction = encode(net, rows[torch.arange(1)])
        cheap = []
        for _, term in self.fixed_s.pairs:
            s = rows.s if term.columns is None else rows.s.columns(term.columns[0])
            width = (z if term.on == "representation" else prediction).shape[-1]
            cheap.append(term.dependence.cheap_rows(width, s.kinds))
        return min(cheap)

    @torch.no_grad()
    def _measure(self, net: nn.Module, rows: Rows, parts: Sequence[Tensor]) -> Tensor:
        """Return the dependence of each net of a stack on rows in blocks, always with the same pairings."""
        total: Any = 0.0
        fixed = torch.Generator().manual_seed(0)
        for index in parts:
            batch = rows[index.to(rows.x.device)]
            z, prediction = net(batch.x)
            total = total + self.evaluate_penalty(z, prediction, batch, fixed).total.double() * len(index)
        return total / sum(map(len, parts))


def missed_share(
    z: Tensor, x: Tensor, given: Tensor | None, weights: Tensor | None, spread: Tensor
) -> Tensor:
    """Return the share of the variance of columns of x that a linear map of z and of what is given misses.

    For x ``(n, p)`` with columns of this spread, which count alike (but those without any), z ``(..., n, d)``
    and given ``(n, q)``. The map is the best for these rows, so that its derivative does not count.
    """
    w = x.new_full((len(x),), 1.0 / len(x)) if weights is None else (weights / weights.sum()).to(x)
    seen = z if given is None else torch.cat((z, given.to(z).expand(*z.shape[:-1], -1)), dim=-1)
    seen, x = seen - (w @ seen)[..., None, :], x - w @ x
    weighted = w[:, None] * seen
    moments, products = weighted.mT @ seen, weighted.mT @ x / spread
    with torch.no_grad():
        ridge = 1e-6 * moments.diagonal(dim1=-2, dim2=-1).mean(dim=-1).clamp_min(1e-12)
        eye = torch.eye(seen.shape[-1], dtype=x.dtype, device=x.device)
        solved = torch.linalg.solve(moments + ridge[..., None, None] * eye, products)
    # |x - seen solved|^2 multiplied out: no residuals of every row and column are kept.
    explained = (solved * (2.0 * products - moments @ solved)).sum(dim=(-2, -1))
    total = (w @ x.square() / spread.square()).sum()
    return (total - explained) / torch.isfinite(spread).sum().clamp_min(1)


def _find_spread(rows: Rows) -> Tensor:
    """Return the spread of each column of x, at least a hundredth of the largest; of constants infinity."""
    w = torch.ones_like(rows.x[:, 0]) if rows.weights is None else rows.weights
    w = (w / w.sum()).to(rows.x)
    spread = (w @ (rows.x - w @ rows.x).square()).sqrt()
    constant = spread <= 1e-6 * rows.x.abs().amax(dim=0)
    return torch.where(constant, torch.inf, spread.clamp_min(0.01 * spread.max()))


@torch.no_grad()
def encode(net: nn.Module, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return z and the prediction for all rows, computed in pieces."""
    net.eval()
    pieces = [net(x) for x in rows.x.split(65_536)]
    return torch.cat([z for z, _ in pieces], dim=-2), torch.cat([f for _, f in pieces], dim=-2)


def _fix_scales_of_s(
    net: nn.Module, rows: Rows, options: Options, generator: torch.Generator
) -> PenaltySum | None:
    if options.penalty is None or not options.penalised:
        return None
    if rows.s is None:
        must = "have sensitive columns for a penalty of positive weight"
        raise ArgumentError("rows", must, "none", "Pass them.")
    z, prediction = encode(net, rows)
    return options.penalty.calibrate(
        z, prediction, rows.s, rows.labels, generator, weights=rows.weights, side="s"
    )


def _divide_by_first(dependence: Tensor) -> list[float | None]:
    """Return the dependence of each net over that of the first; None where that one has none."""
    if not bool(dependence[0] > 0):
        return [None] * len(dependence)
    return [float(value / dependence[0]) for value in dependence]
