"""Rows of one score and one sensitive column as a table of counts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frhsic.data import Sensitive
from frhsic.kernels import Gaussian, Kernel, default_kernel
from frhsic.kernels.documents import describe_kernel, has_document
from frhsic.table import (
    JOINT_CELLS,
    Bandwidths,
    CellBounds,
    Column,
    KernelErrors,
    Labels,
    Law,
    Persons,
    ScoreTable,
    Side,
    median_distance,
)

_kept: ContextVar[dict[Any, Any] | None] = ContextVar("kept", default=None)
# Of the range of a column, for the derivative of a kernel.
_STEP = 1e-6
# Cells of S in a table: more take too much memory beside 512 levels of the score.
_MOST_CELLS = 16_384
# Cells of several columns with rows in them, between which a kernel is a matrix.
MOST_JOINT = 1_600
# Multiplications of a bound on what cells leave out: tenths of a second, and 200 MB of memory. Long tails of
# many rows take more.
_MOST_PRODUCTS = 1e9


@contextlib.contextmanager
def keep_tables() -> Iterator[None]:
    """Count a table, and take an embedding, once within this block: several questions share them."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


_T = TypeVar("_T")


def once(key: tuple[Any, ...], tensors: Sequence[Tensor | None], make: Callable[[], _T]) -> _T:
    """Return what is made of some tensors, within :func:`keep_tables` that of before."""
    kept = _kept.get()
    if kept is None:
        return make()
    places = (None if x is None else (x.data_ptr(), x.shape, x.stride()) for x in tensors)
    key = (*key, *places)
    if key not in kept:
        # The tensors are kept too: while they live, no other one has their address.
        kept[key] = make(), tensors
    found: _T = kept[key][0]
    return found


def table_of(
    z: Tensor,
    s: Sensitive,
    w: Tensor | None,
    label: Tensor | None = None,
    cutoffs: Sequence[float] = (),
) -> ScoreTable:
    """Return the table of rows of one score ``(n, 1)`` and sensitive columns, by codes of an outcome.

    Cut-offs of the score are borders of its levels.
    """
    key = ("table", tuple(cutoffs), s.names, s.kinds, s.categories)
    return once(key, (z, s.values, w, label), lambda: _count(z, s, w, label, cutoffs))


def _count(
    z: Tensor, s: Sensitive, w: Tensor | None, label: Tensor | None, cutoffs: Sequence[float]
) -> ScoreTable:
    return ScoreTable.from_rows(
        z[:, 0].numpy(),
        _columns(s),
        outcome=None if label is None else _labels(label, None),
        sample_weight=None if w is None else w.numpy(),
        names=s.names,
        at_scores=cutoffs,
    )


def _columns(s: Sensitive) -> list[Column]:
    known = s.categories or (None,) * len(s.names)
    return [
        _labels(x, None if labels is None else len(labels)) if kind == "categorical" else x.numpy()
        for x, kind, labels in zip(s.values.T, s.kinds, known, strict=True)
    ]


def persons_of(table: ScoreTable, z: Tensor, s: Sensitive, w: Tensor | None, groups: Tensor) -> Persons:
    """Return which rows of the law of a table are of one group; arguments as of :func:`table_of`."""
    cell, level = table.places(z[:, 0].numpy(), _columns(s))
    weights = np.ones(len(z)) if w is None else w.numpy()
    return Persons.of(groups.numpy(), cell, level, weights)


def _labels(codes: Tensor, count: int | None) -> Labels:
    count = int(codes.max()) + 1 if count is None else count
    return Labels(codes.numpy().astype(np.int64), tuple(f"{code}" for code in range(count)))


def has_table(z: Tensor, s: Sensitive, groups: Tensor | None, *, joint: bool = False) -> bool:
    """Return whether rows are a score and one sensitive column, each row a person of its own.

    ``joint``: or several columns with not too many cells together.
    """
    if z.shape[1] != 1 or groups is not None or (len(s.names) > 1 and not joint):
        return False
    most = 1 if len(s.names) == 1 else 2 * JOINT_CELLS
    kinds = zip(s.values.T, s.kinds, strict=True)
    cells = [int(x.max()) + 1 if kind == "categorical" else most for x, kind in kinds]
    return math.prod(cells) <= _MOST_CELLS


def law_for_kernels(z: Tensor, s: Sensitive, w: Tensor | None, groups: Tensor | None) -> Law | None:
    """Return the law of a table between whose cells kernels are matrices; None of other rows."""
    if has_table(z, s, groups):
        return table_of(z, s, w).law()
    if not has_table(z, s, groups, joint=True):
        return None
    law = table_of(z, s, w).law()
    return law if len(law.s) <= MOST_JOINT else None


@dataclass(frozen=True, eq=False)
class TableEmbedding:
    """What inference needs of the cross-covariance of a score and S, from the law of a table.

    It answers what :class:`~frhsic.inference._embedding.Embedding` answers.
    """

    law: Law
    found: KernelErrors
    bounds: CellBounds | None = None  # of Gaussian kernels
    notes: tuple[str, ...] = ()
    groups: None = None

    @classmethod
    def of(cls, law: Law, rules: tuple[Kernel, Kernel], z: Tensor, s: Sensitive) -> TableEmbedding:
        """Return the embedding under two kernels; scales that are rules are those of the table."""
        rows, several = (law.rows.sum(axis=1), law.rows.sum(axis=0)), len(law.numbers) > 1
        kernel_s, kernel_z = _with_scales(rules[1], law.s, rows[0]), _with_scales(rules[0], law.z, rows[1])
        if several and _is_default(rules[1], s):
            scales = Bandwidths.of(law).s
            kernel_s = default_kernel(s.kinds, scales)
        sides = [
            _side(kernel.bind(x), torch.from_numpy(cells), share)
            for kernel, x, cells, share in (
                (kernel_s, s.values, law.s, law.p),
                (kernel_z, z, law.z[:, None], law.q),
            )
        ]
        bounds, notes = None, tuple[str, ...]()
        if several:
            notes = (f"{' and '.join(s.names)} together: by {len(law.s):,} cells.",)
        else:
            sigma_s, sigma_z = _bandwidth(kernel_s, number=law.numbers[0]), _bandwidth(kernel_z, number=True)
            if sigma_s is not None and sigma_z is not None:
                bounds = CellBounds(law, Bandwidths(sigma_z, (sigma_s,)))
        return cls(law, KernelErrors(law, *sides), bounds, notes)

    def __len__(self) -> int:
        return round(self.law.n)

    @property
    def rows(self) -> float:
        """The number of equally weighted rows that would be as precise, 1 / sum_i w_i^2."""
        return self.law.effective_rows

    @property
    def units(self) -> int:
        """The number of independent units."""
        return len(self)

    @property
    def length(self) -> float:
        """|C^|, the root of the biased HSIC."""
        return max(self.found.value.biased[0], 0.0) ** 0.5

    @property
    def eigenvalues(self) -> Tensor:
        """Of the error of C^, times the number of rows; largest first."""
        return torch.from_numpy(len(self) * self.found.spectrum[0])

    @property
    def rest(self) -> float:
        """The part of their sum that they leave out."""
        return len(self) * self.found.spectrum[1]

    def unbiased(self) -> tuple[float, float, float]:
        """Return the debiased forms of HSIC(Z, S), HSIC(Z, Z) and HSIC(S, S)."""
        return self.found.value.unbiased

    def size(self, normalized: bool) -> float:
        """Return what HSIC is divided by: the root of HSIC(Z, Z) HSIC(S, S), or one."""
        return self.found.size(normalized)

    def cell_error(self, normalized: bool) -> float | None:
        """Return a bound on the distance of the debiased form from that of the rows, wherever in their cells.

        None where kernels are not Gaussian, or where it takes too long.
        """
        if self.bounds is None or self.bounds.products > _MOST_PRODUCTS:
            return None
        return self.bounds.of(unbiased=True, normalized=normalized).most

    def standard_error(self, normalized: bool) -> float:
        """Return the first-order standard error of the debiased form."""
        return self.found.standard_error(normalized)

    def is_far(self, factor: float, confidence: float) -> bool:
        """Return whether |C^| is above so many times a quantile of |C^ - C|, before that is known."""
        return self.found.is_far(factor, confidence)

    def errors(self, n_draws: int, generator: torch.Generator) -> Tensor:
        """Return draws of |C^ - C|, shape ``(n_draws,)``."""
        return torch.from_numpy(self.found.errors(n_draws, rng_of(generator)))

    def by_chance(self, n_draws: int, generator: torch.Generator) -> Tensor:
        """Return draws of the debiased form under independence, in their limit, shape ``(n_draws,)``."""
        return torch.from_numpy(self.found.by_chance(n_draws, rng_of(generator)))


def _is_default(kernel: Kernel, s: Sensitive) -> bool:
    """Return whether a kernel is the one that sensitive columns have unless another is given."""
    if not has_document(kernel):
        return False
    return bool(describe_kernel(kernel) == describe_kernel(default_kernel(s.kinds)))


def _with_scales(kernel: Kernel, cells: NDArray[np.float64], rows: NDArray[np.float64]) -> Kernel:
    """Return a kernel of one column, with the median distance of its cells where that is the rule."""
    column = cells.reshape(len(cells), -1)
    if not isinstance(kernel, Gaussian) or kernel.whiten is not False or column.shape[1] > 1:
        return kernel
    if kernel.bandwidth != "median":
        return kernel
    return replace(kernel, bandwidth=median_distance(column[:, 0], rows))


def _bandwidth(kernel: Kernel, *, number: bool) -> float | None:
    """Return sigma of a Gaussian kernel of one column, 0 of the equality of labels, None of another one."""
    if not number:
        return 0.0 if kernel.by_equality else None
    if not isinstance(kernel, Gaussian) or kernel.whiten is not False:
        return None
    return kernel.bandwidth if isinstance(kernel.bandwidth, float) else None


def _side(kernel: Kernel, at: Tensor, share: NDArray[np.float64]) -> Side:
    """Return a bound kernel between cells; of one column with its derivative, by differences."""
    gram, step = kernel.gram(at, at).numpy(), _STEP * float(at.max() - at.min())
    if kernel.by_equality or step == 0.0 or at.shape[1] > 1:
        return Side(gram, share)
    slope = (kernel.gram(at + step, at) - kernel.gram(at - step, at)) / (2.0 * step)
    return Side(gram, share, slope.numpy())


def rng_of(generator: torch.Generator) -> np.random.Generator:
    """Return a generator of NumPy with a seed drawn from one of torch."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
