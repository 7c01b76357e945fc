"""Recovered variance: how well functions of S are predicted from functions of Z, on rows left out."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from frhsic._checks import ArgumentError
from frhsic.data import Sensitive
from frhsic.dependence._base import Dependence
from frhsic.kernels import scale
from frhsic.kernels.ranks import find_places, find_ranks
from frhsic.numerics._smoothing import row_weights

# Frequencies of the cosines of z: log-uniform between these, over the root of the width.
_SLOWEST, _FASTEST = 0.3, 8.0


class _Cosines(NamedTuple):
    """Random frequencies ``(d, m)`` and phases ``(m,)``."""

    frequencies: Tensor
    phases: Tensor


class RecoveredVariance(Dependence):
    """The share of the variance of functions of S that a regression on functions of Z predicts.

    Each row is predicted by a ridge regression on the other rows (in closed form), so that what fits by
    chance counts for nothing. It has no scale: z is divided by its own, and s enters by its ranks.

    Parameters
    ----------
    n_features : int, default=128
        Random cosines of z, beside its whitened columns: half of them of whitened z, where every direction
        counts alike, and half of z over its spread, where directions of large variance count.
    degree : int, default=5
        Cosines of the rank of each continuous column of s: sqrt(2) cos(pi k u) for k = 1, ..., degree. Of a
        category they are indicators, each over the root of its share.
    ridge : float, default=0.01
        Positive; in units of the variance of a feature.
    seed : int or None, default=0
        Of the random cosines. None draws others at each call from the generator of torch: for a penalty,
        which z could else evade.
    exact_gradient : bool, default=True
        Whether the gradient follows the regression as z moves. False takes its coefficients for fixed, as
        those of an adversary at its best are: nearly the same direction, in about half the time.

    Notes
    -----
    With F the features of z and T those of s, second moments S_F and S_FT, and B = (S_F + r)^(-1) S_FT, its
    target is the variance that the regression explains in the population,

        tr S_TF (S_F + r)^(-1) (S_F + 2 r) (S_F + r)^(-1) S_FT = E|T|^2 - E|T - B'F|^2,

    over E|T|^2: zero for independent Z and S, and one if B'F = T. With leverages h and residuals e of all
    rows, row i is left out by e_i / (1 - h_i). Coefficients of n rows vary, so that the rows left out are
    missed by more than their variance. What is missed is therefore divided by its mean over all orders of
    the rows of s, in closed form: under independence the expected value is zero at any number of rows
    (with unequal weights nearly, where rows are many).

    Examples
    --------
    >>> import torch
    >>> s = torch.linspace(-1, 1, 400, dtype=torch.float64)
    >>> noise = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> measure = RecoveredVariance(degree=1)
    >>> bool(measure(s + 0.1 * noise, s) > 0.9), bool(measure(noise, s).abs() < 0.1)
    (True, True)
    """

    def __init__(
        self,
        n_features: int = 128,
        *,
        degree: int = 5,
        ridge: float = 0.01,
        seed: int | None = 0,
        exact_gradient: bool = True,
    ) -> None:
        super().__init__()
        for name, value, least in (("n_features", n_features, 0), ("degree", degree, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ArgumentError(name, f"be an integer of at least {least}", repr(value), "Leave it out.")
        if not 0 < ridge < float("inf"):
            raise ArgumentError("ridge", "be a positive number", repr(ridge), "Take 0.01 to start with.")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ArgumentError("seed", "be None or an integer of at least 0", repr(seed), "Take 0.")
        exact: Any = exact_gradient
        if not isinstance(exact, bool):
            raise ArgumentError("exact_gradient", "be True or False", repr(exact), "Leave it out for True.")
        self.n_features = n_features
        self.degree = degree
        self.ridge = ridge
        self.seed = seed
        self.exact_gradient = exact_gradient
        self._cosines: _Cosines | None = None
        self._scales: tuple[Tensor, Tensor, Tensor] | None = None  # an origin, a matrix and a factor
        self._places: tuple[Tensor, ...] | None = None  # of each column of s: values and ranks, or shares

    @property
    def debiased(self) -> bool:
        """Yes: what is missed is compared with what would be missed if the rows of s had another order."""
        return True

    def _value(self, z: Tensor, s: Sensitive, w: Tensor | None) -> Tensor:
        return self._recovered(self._features(z, w), self.targets(s, w), row_weights(s, w).to(z))

    def _permuted(self, z: Tensor, s: Sensitive, permutations: Tensor, w: Tensor | None) -> Tensor:
        fixed = self if self._cosines is not None else self._with(_cosines=self._draw(z, None))
        if w is None:  # the features do not move
            F, rows = fixed._features(z, None), row_weights(s, None).to(z)
            T = fixed.targets(s, None)
            return torch.stack([fixed._recovered(F, T[order], rows) for order in permutations])
        return super(RecoveredVariance, fixed)._permuted(z, s, permutations, w)

    def _recovered(self, F: Tensor, T: Tensor, w: Tensor) -> Tensor:
        """Return the recovered share for features of z ``(..., n, m)``, of s ``(n, q)`` and weights."""
        moving, F = F, F if self.exact_gradient else F.detach()
        F, T = F - (w @ F)[..., None, :], T - w @ T
        moments = (w[:, None] * F).mT @ F
        eye = torch.eye(F.shape[-1], dtype=F.dtype, device=F.device)
        root = torch.linalg.cholesky(moments + self.ridge * eye)
        solved = torch.cholesky_solve((w[:, None] * F).mT @ T, root)
        inner = torch.cholesky_inverse(root) @ F.mT  # row i is predicted with weights w_j (1 + F_j inner_i)
        own = (F.mT * inner).sum(dim=-2)
        leverage = w * (1.0 + own)
        left_out = (T - F @ solved) / (1.0 - leverage)[..., None]
        if not self.exact_gradient and moving.requires_grad:
            # Row i moves with the coefficients of the other rows, solved - inner_i w_i left_out_i.
            moved = moving - moving.detach()  # zero, with a gradient
            back = (moved * inner.mT).sum(dim=-1) * w
            left_out = left_out - moved @ solved + back[..., None] * left_out
        missed = (left_out.square().sum(dim=-1) * w).sum(dim=-1)

        # The mean of missed over orders of T: the variance of a row, and that of its prediction from others.
        if bool((w == w[0]).all()):
            squares = w[0] * (own - self.ridge * inner.square().sum(dim=-2))
        else:
            Q = w.square()[:, None] * F
            squares = (inner * (Q.mT @ F @ inner + 2.0 * Q.sum(dim=-2)[..., None])).sum(dim=-2)
        lengths, effective = T.square().sum(dim=-1), w.square().sum()
        one, others = w @ lengths, (w.square() @ lengths) / effective
        by_mean = (w * lengths / (1.0 - w).square()).sum()  # missed by the mean of the other rows
        by_mean_chance = one + others * (w * (effective - w.square()) / (1.0 - w).square()).sum()
        predicted = squares + effective - leverage.square()
        by_chance = one + others * (w * predicted / (1.0 - leverage).square()).sum(dim=-1)
        varies = ~(by_mean <= (64.0 * torch.finfo(T.dtype).eps) ** 2)  # below is rounding; nan is kept
        expected = torch.where(varies, by_mean * by_chance / by_mean_chance, 1.0)
        return torch.where(varies, 1.0 - missed / expected, missed * 0.0)

    def _features(self, z: Tensor, w: Tensor | None) -> Tensor:
        """Return whitened z and cosines of it and of z over its spread, ``(..., n, d + m)``."""
        n, d = z.shape[-2:]
        if self._scales is None and n < d + 2:
            must = f"have at least {d + 2} rows for {d} columns"
            raise ArgumentError("z", must, n, "Use a larger batch or fewer columns.")
        origin, matrix, factor = _find_scales(z, w) if self._scales is None else self._scales
        white, plain = scale.move(z, origin, matrix), scale.move(z, origin, False) * factor
        drawn = self._draw(z, None) if self._cosines is None else self._cosines
        waves, half = drawn.frequencies.to(z), self.n_features // 2
        angles = torch.cat((white @ waves[:, :half], plain @ waves[:, half:]), -1) + drawn.phases.to(z)
        return torch.cat((white, math.sqrt(2.0) * torch.cos(angles)), -1)

    def _draw(self, z: Tensor, generator: torch.Generator | None) -> _Cosines:
        if self.seed is not None:
            generator = torch.Generator().manual_seed(self.seed)
        d, m = z.shape[-1], self.n_features
        options: dict[str, Any] = {"dtype": torch.float64, "generator": generator}
        speeds = _SLOWEST * (_FASTEST / _SLOWEST) ** torch.rand(m, **options)
        frequencies = torch.randn(d, m, **options) * speeds / math.sqrt(d)
        return _Cosines(frequencies.to(z), (2.0 * math.pi * torch.rand(m, **options)).to(z))

    def targets(self, s: Sensitive, w: Tensor | None) -> Tensor:
        """Return functions of the columns of s ``(n, q)``, each of about unit variance in all."""
        places = self._places or self._find_places(s, w)
        found = []
        for column, kind, at in zip(s.values.mT, s.kinds, places, strict=True):
            if kind == "categorical":
                codes = torch.arange(len(at), device=column.device)
                found.append((column[:, None] == codes).to(column) / at.to(column).clamp_min(1e-12).sqrt())
            else:
                ranks = find_ranks(column[:, None], at[None])
                degrees = torch.arange(1, self.degree + 1).to(column)
                found.append(math.sqrt(2.0) * torch.cos(math.pi * ranks * degrees))
        return torch.cat(found, dim=1)

    def _find_places(self, s: Sensitive, w: Tensor | None) -> tuple[Tensor, ...]:
        rows, places = row_weights(s, w), []
        for j, (column, kind) in enumerate(zip(s.values.mT, s.kinds, strict=True)):
            if kind == "categorical":
                known = s.categories[j] if s.categories else None
                count = int(column.max()) + 1 if known is None else len(known)
                places.append(rows.new_zeros(count).index_add(0, column.long(), rows))
            else:
                places.append(find_places(column[:, None], rows)[0])
        return tuple(places)

    def _calibrated(
        self, z: Tensor, s: Sensitive, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        return self._calibrated_s(z, s, w, generator, freeze)._calibrated_z(z, w, generator, freeze)

    def _calibrated_s(
        self,
        z: Tensor,  # noqa: ARG002
        s: Sensitive,
        w: Tensor | None,
        generator: torch.Generator | None,  # noqa: ARG002
        freeze: bool,  # noqa: ARG002
    ) -> Self:
        return self._with(_places=self._places or self._find_places(s, w))

    def _calibrated_z(
        self, z: Tensor, w: Tensor | None, generator: torch.Generator | None, freeze: bool
    ) -> Self:
        frozen = _find_scales(z, w) if freeze else None
        return self._with(_cosines=self._cosines or self._draw(z, generator), _scales=self._scales or frozen)


def _find_scales(z: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean, what whitens, and the factor that makes the mean variance of columns one."""
    origin = scale.weighted_mean(z, w)
    rows = z.new_full(z.shape[-2:-1], 1.0 / z.shape[-2]) if w is None else w
    variance = (rows @ (z - origin).square()).mean(dim=-1)
    factor = torch.where(variance > 0, variance, 1.0).rsqrt()
    return origin, scale.whitening(z, w), factor[..., None, None]
