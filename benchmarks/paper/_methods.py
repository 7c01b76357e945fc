"""The methods of the reproduction: what trains them, in which order they stand, and in which colour."""

from dataclasses import dataclass

import torch
from torch import Tensor

from frhsic import FRHSICClassifier, FRHSICRegressor, Training, baselines
from frhsic.baselines import Method
from frhsic.data import Sensitive
from frhsic.dependence import Dependence
from frhsic.penalty import Penalty, PenaltySum, budget_penalty, default_penalty

# One grid for every method: the published nine lambdas, and as many budgets.
LAMS = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0)
BUDGETS = (0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)


class AsWritten(Dependence):
    """FREM's penalty as the published script computes it: on 32 random rows of the batch, multiplied out.

    v'Kv - 2 v'K1/n + 1'K1/n^2 is a difference of numbers near 1: in single precision it is known to about
    1e-7, and its root, where Z hardly depends on S, to about 3e-4. ``baselines.FREM`` takes all rows, and
    (v - 1/n)'K(v - 1/n) as it stands. Models of a stack are evaluated one by one, since products of a stack
    round four times as coarsely as those of one model. S is one column in [0, 1].
    """

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        if w is not None:
            raise ValueError(
                "'weights' must be None: the published script has none. Got weights. Leave them out."
            )
        W = torch.exp(-((s.values - s.values.mT) ** 2) / (2.0 * 0.5**2))
        W.fill_diagonal_(0.0)
        V = (W / W.sum(dim=1, keepdim=True))[torch.randperm(len(s))[:32]]
        each = [self._on_anchors(one, V) for one in z.reshape(-1, *z.shape[-2:])]
        return torch.stack(each).reshape(z.shape[:-2])

    def _on_anchors(self, z: Tensor, V: Tensor) -> Tensor:
        K = torch.exp(-self._squared(z) / 2.0)
        to_all = K.mean(dim=1)
        squared = ((V @ K) * V).sum(dim=1) - 2.0 * (V @ to_all) + to_all.mean()
        return squared.clamp(min=1e-10).sqrt().mean()

    def _squared(self, z: Tensor) -> Tensor:
        # Distances by a product, as torch.cdist takes them at this size; their gradient is then one, too.
        norms = z.square().sum(dim=1, keepdim=True)
        return (norms + norms.mT - 2.0 * z @ z.mT).clamp(min=0.0)


@dataclass(frozen=True)
class Contender:
    """A method as tables, figures and published files know it.

    ``method`` is None for this package's own default, which has one penalty for lambdas and one for budgets.
    An adversary has no measured dependence that a budget could be a share of, and FREM as written is measured
    on other rows at every step.
    """

    name: str
    method: Method | None
    colour: str
    marker: str
    published: str | None

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of the objective that it has: "lam", "budget" or both."""
        return ("lam",) if self.name in ("Unfair", "FREM", "ADV", "LAFTR (binned)") else ("lam", "budget")

    def strengths(self, form: str) -> tuple[float, ...]:
        """Return the strengths of its rows; Unfair has one of strength 0."""
        if self.name == "Unfair":
            return (0.0,)
        return LAMS if form == "lam" else BUDGETS

    def estimator(
        self, form: str, *, regression: bool, epochs: int, seed: int, checkpoint: str | None = None
    ) -> FRHSICClassifier | FRHSICRegressor:
        """Return it unfitted, trained as published: network, optimiser, batches, X and S in [0, 1]."""
        kind = FRHSICRegressor if regression else FRHSICClassifier
        penalty: Penalty | PenaltySum | None
        if self.method is not None:
            penalty = self.method.penalty
        else:
            penalty = default_penalty() if form == "lam" else budget_penalty(classes=not regression)
        training = Training(
            every=None if self.method is None else 20,  # its own default has the scales of each batch
            last_batch="keep",
            scaling="minmax",
            checkpoint=checkpoint,
            checkpoint_every=max(1, epochs // 20),
        )
        return kind(lam=0.0, penalty=penalty, epochs=epochs, random_state=seed, training=training)


# Okabe and Ito's colours, which most colour-blind people tell apart; the markers tell without colour.
CONTENDERS = {
    one.name: one
    for one in (
        Contender("Unfair", baselines.UNFAIR, "#000000", "*", "Unfair"),
        Contender("FRHSIC-published", baselines.FRHSIC, "#D55E00", "o", "FRHSIC_Ours"),
        Contender("FREM", Method("FREM", Penalty(AsWritten())), "#009E73", "s", "FREM"),
        Contender("Reg-GDP", baselines.REG_GDP, "#0072B2", "^", "Reg-GDP"),
        Contender("ADV", baselines.ADV, "#CC79A7", "v", "ADV"),
        Contender("MMD (binned)", baselines.MMD, "#E69F00", "D", "MMD_binned"),
        Contender("LAFTR (binned)", baselines.LAFTR, "#7F7F7F", "P", "LAFTR_binned"),
        Contender("dCor", baselines.DCOR, "#56B4E9", "X", "dCor"),
        Contender("FREM-exact", baselines.FREM, "#7FC97F", "p", None),
        Contender("FRHSIC", None, "#8B0000", "h", None),
    )
}
