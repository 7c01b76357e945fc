"""What a dependence measure is."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from frhsic.data import Kind, Sensitive

_CONTINUOUS: tuple[Kind, ...] = ("continuous",)


class Dependence(nn.Module, ABC):
    """A number that is small when Z tells little about S.

    Called as ``measure(z, s, weights=None)``: z is ``(n, d)``, or ``(..., n, d)`` for a stack of models that
    share one s; s is ``(n,)``, ``(n, q)`` or a :class:`~frhsic.data.Sensitive`; weights ``(n,)`` are
    non-negative and need not sum to one. The result has the shape of the stack. A plain tensor s is taken as
    continuous; categories arrive in a ``Sensitive``.
    """

    differentiable: ClassVar[bool] = True
    """Whether gradients reach z. A penalty refuses measures for which this is False."""

    min_rows: ClassVar[int] = 2
    """The number of rows below which the measure is not defined."""

    def forward(self, z: Tensor, s: Tensor | Sensitive, weights: Tensor | None = None) -> Tensor:
        """Return the dependence of z on s, shape ``(...)``."""
        z, s, w = self._checked(z, s, weights)
        return self._value(z, s, w)

    @abstractmethod
    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        """Return the value for z ``(..., n, d)``, s of the dtype of z, and w None or summing to one."""

    def calibrate(self, z: Tensor, s: Tensor | Sensitive, generator: torch.Generator | None = None) -> Self:
        """Return this measure with every data-dependent scale fixed on these rows.

        Calibrated measures do not depend on the order of rows (but ``EIPM(anchors=...)`` does among equal S),
        and give numbers that can be compared between samples.
        """
        z, s, _ = self._checked(z, s, None)
        return self._calibrated(z.detach(), s, generator)

    def _calibrated(self, z: Tensor, s: Sensitive, generator: torch.Generator | None) -> Self:  # noqa: ARG002
        return self

    def permuted(self, z: Tensor, s: Tensor | Sensitive, permutations: Tensor) -> Tensor:
        """Return the value for each re-pairing of z with s[permutation], shape ``(B,)``.

        Parameters
        ----------
        z : Tensor of shape (n, d)
        s : Tensor of shape (n, q) or Sensitive
        permutations : LongTensor of shape (B, n)
        """
        z, s, _ = self._checked(z, s, None)
        return self._permuted(z.detach(), s, permutations)

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor) -> Tensor:
        return torch.stack([self._value(z, s[order], None).detach() for order in permutations])

    def _checked(
        self, z: Tensor, s: Tensor | Sensitive, weights: Tensor | None
    ) -> tuple[Tensor, Sensitive, Tensor | None]:
        name = type(self).__name__
        if z.ndim == 1:
            z = z.unsqueeze(-1)
        if isinstance(s, Tensor):
            values = s.unsqueeze(-1) if s.ndim == 1 else s
            q = values.shape[-1]
            s = Sensitive(values, tuple(f"s{j}" for j in range(q)), _CONTINUOUS * q)
        if s.values.requires_grad:
            raise ValueError(
                f"'s' must not require gradients in {name}. Got a tensor with requires_grad=True. "
                "Pass s.detach(): only z is differentiated."
            )
        n = z.shape[-2]
        if len(s) != n:
            raise ValueError(
                f"'s' must have {n} rows like 'z'. Got {len(s)}. Drop or align the missing rows first."
            )
        if n < self.min_rows:
            raise ValueError(
                f"'z' must have at least {self.min_rows} rows for {name}. Got {n}. "
                "Use a larger batch or sample."
            )
        if weights is not None:
            if weights.shape != (n,):
                raise ValueError(
                    f"'weights' must have shape ({n},) like the rows of 'z'. Got {tuple(weights.shape)}. "
                    "Pass one weight for each row."
                )
            weights = weights.to(z)
            weights = weights / weights.sum()
        return z, s.to(z), weights

    def _with(self, **changes: object) -> Self:
        """Return a copy that differs in the named attributes."""
        other = copy.deepcopy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other
