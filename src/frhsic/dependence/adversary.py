"""An adversary: a network that guesses S from Z, as a dependence with parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive, to_generator
from frhsic.dependence._base import Dependence
from frhsic.numerics._bins import bin_of, check_bins, inner_edges
from frhsic.numerics._smoothing import row_weights


class Adversary(Dependence):
    """What a network learns about S from Z: the variance it explains, or the information about bins of S.

    Regression (ADV): Var(S) - E|a(Z) - S|^2, summed over columns. Classification of bins (LAFTR):
    H(bin) - cross-entropy, a lower bound on the mutual information of Z with the bin. Both are 0 for an
    adversary that knows nothing. The parameters are to be ascended while z is trained to lower the value; the
    gradients are those of the published minus-squared-error and minus-cross-entropy.

    Parameters
    ----------
    hidden : sequence of int, default=(50,)
        Widths of the hidden layers (SELU).
    n_bins : int or None, default=None
        None regresses on S; a number classifies its quantile bins (4 as published for LAFTR).

    Notes
    -----
    The layers are made by ``calibrate(z, s, generator)``, one set for each model of a stack (all start alike,
    as they would if each were trained from one seed) and from fresh entropy without a generator; before that
    the adversary cannot be evaluated. ``permuted`` keeps
    the parameters: it is not a test of independence.

    Examples
    --------
    >>> import torch
    >>> z, s = torch.randn(8, 3), torch.randn(8)
    >>> Adversary().calibrate(z, s, torch.Generator().manual_seed(0))(z, s).shape
    torch.Size([])
    """

    def __init__(self, hidden: Sequence[int] = (50,), *, n_bins: int | None = None) -> None:
        super().__init__()
        if n_bins is not None:
            check_bins(n_bins, "quantile")
        self.hidden = tuple(hidden)
        self.n_bins = n_bins
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        self._edges: Tensor | None = None

    @property
    def debiased(self) -> bool:
        """Yes: what the network has not learned, it does not explain."""
        return True

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        if len(self.weights) == 0:
            raise ArgumentError(
                "Adversary",
                "have layers before it is evaluated",
                "none",
                "Make them with adversary.calibrate(z, s, generator).",
            )
        w = row_weights(s, w)
        x = z
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight.to(z.dtype) + bias.to(z.dtype)
            if depth < len(self.weights) - 1:
                x = torch.selu(x)
        if self._edges is None:
            variance = (w @ (s.values - w @ s.values).square()).sum()
            residual: Tensor = (x - s.values).square().sum(dim=-1) @ w
            return variance - residual
        bins = bin_of(s, self._edges)
        shares = torch.zeros(x.shape[-1]).to(z).index_add(0, bins, w)
        entropy = torch.special.entr(shares).sum()
        chosen = x.log_softmax(dim=-1).gather(-1, bins[:, None].expand(*x.shape[:-1], 1)).squeeze(-1)
        return entropy + chosen @ w

    def _calibrated(
        self,
        z: Tensor,
        s: Sensitive,
        w: Tensor | None,  # noqa: ARG002
        generator: torch.Generator | None,
        freeze: bool,  # noqa: ARG002
    ) -> Self:
        if self.n_bins is None and "categorical" in s.kinds:
            raise ArgumentError(
                "s",
                "be continuous for an adversary that regresses on it",
                "categories",
                "Pass n_bins=... to classify their levels.",
            )
        generator = to_generator(generator)
        edges = None if self.n_bins is None else inner_edges(s, self.n_bins, "quantile")
        outputs = len(s.names) if edges is None else len(edges) + 1
        other = type(self)(self.hidden, n_bins=self.n_bins)
        other._edges = edges
        sizes = (z.shape[-1], *self.hidden, outputs)
        for fan_in, fan_out in pairwise(sizes):
            # PyTorch's default for linear layers: uniform within 1 / sqrt(fan_in), weights and biases alike.
            reach = 1.0 / math.sqrt(fan_in)
            for parameters, rows in ((other.weights, fan_in), (other.biases, 1)):
                drawn = torch.rand(
                    (rows, fan_out),
                    generator=generator,
                    dtype=torch.float64,
                    device=generator.device,
                )
                first = ((2.0 * drawn - 1.0) * reach).to(z)
                parameters.append(nn.Parameter(first.expand(*z.shape[:-2], rows, fan_out).clone()))
        return other
