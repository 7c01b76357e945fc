"""What a dependence measure is."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from frhsic._checks import ArgumentError
from frhsic.data import Kind, Sensitive
from frhsic.kernels import Kernel

_S_TYPES = (Tensor, Sensitive)


class Dependence(nn.Module, ABC):
    """A number that is small when Z tells little about S.

    Called as ``measure(z, s, weights=None)``: z is ``(n, d)``, or ``(..., n, d)`` for a stack of models that
    share one s; s is ``(n,)``, ``(n, q)`` or a :class:`~frhsic.data.Sensitive`; weights ``(n,)`` are
    non-negative and need not sum to one; rows of weight zero are left out. The result has the shape of the
    stack. A plain tensor s is taken as continuous; categories arrive in a ``Sensitive``. Values that are not
    finite give nan; the functions of :mod:`frhsic.data` raise an error that says where they are.

    Examples
    --------
    >>> import torch
    >>> from frhsic.dependence import GDP
    >>> isinstance(GDP(), Dependence), GDP().differentiable
    (True, True)
    """

    differentiable: ClassVar[bool] = True
    """Whether gradients reach z. A penalty needs a measure for which this is True."""

    min_rows: ClassVar[int] = 2
    """The number of rows below which the measure is not defined."""

    kernel_z: Kernel | None = None
    """The kernel on z, for measures that have one: the only home of scales of z."""

    @property
    def bounded_below(self) -> bool:
        """Whether no z makes the value arbitrarily negative. A penalty needs a measure with a bound."""
        return True

    def cheap_rows(self, width: int, kinds: Sequence[Kind]) -> int:  # noqa: ARG002
        """Return the rows above which a value without gradients is not cheap, for z so wide and such s."""
        return 4_096

    @property
    def debiased(self) -> bool:
        """Whether the expected value for independent rows is zero, or nearly, at any number of rows."""
        return False

    def forward(self, z: Tensor, s: Tensor | Sensitive, weights: Tensor | None = None) -> Tensor:
        """Return the dependence of z on s, shape ``(...)``."""
        z, s, w = self._checked(z, s, weights)
        if torch.is_autocast_enabled(z.device.type):
            with torch.autocast(z.device.type, enabled=False):  # bfloat16 has too few digits for centring
                return self._value(z, s, w)
        return self._value(z, s, w)

    def beyond_chance(
        self, z: Tensor, s: Tensor | Sensitive, order: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return a value whose mean is zero for independent rows, at any number of them, shape ``(...)``.

        The value less that for z paired with s[order], where the order is random. Measures with an estimator
        that is debiased by itself return that one. Weights belong to the rows of s and travel with them.
        """
        moved = None if weights is None else weights[order]
        return self(z, s, weights) - self(z, s[order], moved)

    @abstractmethod
    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        """Return the value for z ``(..., n, d)``, s of the dtype of z, and w None or summing to one."""

    def calibrate(
        self,
        z: Tensor,
        s: Tensor | Sensitive,
        generator: torch.Generator | None = None,
        *,
        weights: Tensor | None = None,
        freeze: bool = False,
        side: Literal["both", "z", "s"] = "both",
    ) -> Self:
        """Return this measure with every data-dependent scale fixed on these rows.

        Calibrated measures do not depend on the order of rows (but ``EIPM(anchors=...)`` does among equal S),
        and give numbers that can be compared between samples. ``freeze`` also fixes what is differentiable by
        design (``"scale-free"`` bandwidths, whitening): then it is one fixed kernel. A measure calibrated on
        a stack of models is for that stack. ``side="s"`` leaves the scales of z as rules and fixes all else
        (scales of s, an adversary's layers), ``side="z"`` does the opposite: training fixes s once and z as
        it moves.
        """
        if side not in ("both", "z", "s"):
            raise ArgumentError(
                "side", "be 'both', 'z' or 's'", repr(side), "Leave it out to fix every scale."
            )
        z, s, w = self._checked(z, s, weights)
        z = z.detach()
        if side == "both":
            return self._calibrated(z, s, w, generator, freeze)
        if side == "s":
            return self._calibrated_s(z, s, w, generator, freeze)
        return self._calibrated_z(z, w, generator, freeze)

    def _calibrated_s(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        fixed = self._calibrated(z, s, w, generator, freeze)
        return fixed if self.kernel_z is None else fixed._with(kernel_z=self.kernel_z)

    def _calibrated_z(
        self, z: Tensor, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        if self.kernel_z is None:
            return self
        return self._with(kernel_z=self.kernel_z.calibrate(z, weights=w, generator=generator, freeze=freeze))

    def _calibrated(
        self,
        z: Tensor,  # noqa: ARG002
        s: Sensitive,  # noqa: ARG002
        w: Tensor | None,  # noqa: ARG002
        generator: torch.Generator | None,  # noqa: ARG002
        freeze: bool,  # noqa: ARG002
    ) -> Self:
        return self

    def permuted(
        self, z: Tensor, s: Tensor | Sensitive, permutations: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return the value for each re-pairing of z with s[permutation], shape ``(B,)``.

        Parameters
        ----------
        z : Tensor of shape (n, d)
        s : Tensor of shape (n, q) or Sensitive
        permutations : LongTensor of shape (B, n)
        weights : Tensor of shape (n,), optional
            Positive; they belong to the rows of s and travel with them.

        Notes
        -----
        Values that are equal in exact arithmetic (permutations among ties) may differ by rounding, about
        1e-12 of their size: compare them with a tolerance.
        """
        z, s, w = self._checked(z, s, weights)
        if z.ndim != 2 or permutations.ndim != 2 or permutations.shape[1] != len(z):
            raise ArgumentError(
                "permutations",
                "be (B, n) for one model z (n, d)",
                f"{tuple(permutations.shape)} and {tuple(z.shape)}, rows of no weight left out",
                "Pass a row for each permutation; loop over the models of a stack.",
            )
        return self._permuted(z.detach(), s, permutations, w)

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        values = [self._value(z, s[order], None if w is None else w[order]) for order in permutations]
        return torch.stack(values).detach()

    def _checked(
        self, z: Tensor, s: Tensor | Sensitive, weights: Tensor | None
    ) -> tuple[Tensor, Sensitive, Tensor | None]:
        name = type(self).__name__
        _refuse_what_is_no_tensor(z, s, weights)
        if not z.is_floating_point():
            z = z.double()
        elif z.dtype in (torch.bfloat16, torch.float16):
            z = z.float()
        if z.ndim < 2:
            z = z.reshape(-1, 1)
        if isinstance(s, Tensor):
            s = Sensitive.of(s)
        if s.values.requires_grad:
            raise ArgumentError(
                "s",
                f"not require gradients in {name}",
                "a tensor with requires_grad=True",
                "Pass s.detach(): only z is differentiated.",
            )
        n = z.shape[-2]
        if len(s) != n:
            raise ArgumentError(
                "s", f"have {n} rows like 'z'", len(s), "Drop or align the missing rows first."
            )
        if weights is not None:
            if weights.shape != (n,):
                raise ArgumentError(
                    "weights",
                    f"have shape ({n},) like the rows of 'z'",
                    tuple(weights.shape),
                    "Pass one weight for each row.",
                )
            weights = weights.to(z)
            total, least = float(weights.sum()), float(weights.min()) if n else 0.0
            if not (0 < total < float("inf") and least >= 0):
                raise ArgumentError(
                    "weights",
                    "be non-negative with a positive finite sum",
                    f"a sum of {total:g} and a minimum of {least:g}",
                    "Drop rows that should not count.",
                )
            if least == 0:  # such rows are not there: they must not stretch a range or a median either
                rows = weights > 0
                z, s, weights = z[..., rows, :], s[rows], weights[rows]
            weights = weights / weights.sum()
        if z.shape[-2] < self.min_rows:
            raise ArgumentError(
                "z",
                f"have at least {self.min_rows} rows for {name}, rows of no weight left out",
                z.shape[-2],
                "Use a larger batch or sample.",
            )
        if z.shape[-1] == 0:
            raise ArgumentError("z", "have at least one column", "none", "Pass scores or a representation.")
        return z, s.to(z), weights

    def arguments(self) -> dict[str, object]:
        """Return what the measure was made with, by the names of its arguments."""
        if type(self).__init__ is nn.Module.__init__:  # *args, **kwargs
            return {}
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def extra_repr(self) -> str:
        """Return the arguments, for the printed form."""
        return ", ".join(f"{name}={value!r}" for name, value in self.arguments().items())

    def _with(self, **changes: object) -> Self:
        """Return a copy that differs in the named attributes."""
        other = copy.deepcopy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other


def _refuse_what_is_no_tensor(z: object, s: object, weights: object) -> None:
    if isinstance(z, Tensor) and isinstance(s, _S_TYPES) and (weights is None or isinstance(weights, Tensor)):
        return
    if not isinstance(z, Tensor):
        name, must, got, cure = "z", "a tensor", z, "to_matrix"
    elif not isinstance(s, _S_TYPES):
        name, must, got, cure = "s", "a tensor or a Sensitive", s, "to_sensitive"
    else:
        name, must, got, cure = "weights", "a tensor or None", weights, "to_weights"
    raise TypeError(
        f"'{name}' must be {must}. Got {type(got).__name__}. "
        f"Convert arrays and frames with frhsic.data.{cure}."
    )
