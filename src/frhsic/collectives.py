"""Sums and rows of all processes of ``torch.distributed``, so that many can train like one.

All processes of a group call these functions, in the same order. Without a process group there is one
process.

**Gradients.** Let process r compute m_r from parameters that all have in common, M = m_1 + ... + m_W the sum,
and J_r the objective of process r, which M enters. The mean of these objectives has the gradient

    d/dm_r (1/W) sum_q J_q = (1/W) sum_q dJ_q/dM

in m_r, the same for all r. So the backward pass of :func:`all_sum` returns the *sum* of the gradients of all
processes, and the 1/W is that of ``DistributedDataParallel``, FSDP and Lightning, which average gradients.
Each process writes down the objective of all rows, as one process would, and no factor is needed, also where
shards differ in size. Where gradients are added up instead, divide the objective by :func:`n_processes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def n_processes(group: ProcessGroup | None = None) -> int:
    """Return the number of processes, 1 without a process group.

    Examples
    --------
    >>> n_processes()
    1
    """
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def all_sum(x: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """Return the sum of x over all processes, differentiably; x has the same shape in each.

    The gradient is that of the sum of all objectives: see the top of this module.

    Examples
    --------
    >>> all_sum(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if n_processes(group) == 1:
        return x
    total: Tensor = _AllSum.apply(x, group)  # type: ignore[no-untyped-call]
    return total


class _AllSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup | None) -> Tensor:
        ctx.group = group
        total = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # The sum is its own adjoint, also for a second derivative.
        return all_sum(grad, ctx.group), None


def all_mean(values: Tensor, weights: Tensor | None = None, group: ProcessGroup | None = None) -> Tensor:
    """Return the mean of values over the rows of all processes, differentiably: the loss of a global batch.

    Parameters
    ----------
    values : Tensor of shape (..., n)
        n may differ between processes, and be zero.
    weights : Tensor of shape (n,), optional
        Need not sum to one. Passed by all processes or by none.
    group : ProcessGroup, optional

    Returns
    -------
    Tensor of shape (...)
        nan where there are no rows at all.

    Examples
    --------
    >>> all_mean(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0]))
    tensor(1.2500)
    """
    w = (values.new_ones(values.shape[-1]) if weights is None else weights).double()
    sums = torch.cat(((values.double() * w).sum(dim=-1).reshape(-1), w.sum().reshape(1)))
    total = all_sum(sums, group)
    return (total[:-1] / total[-1]).reshape(values.shape[:-1]).to(values.dtype)


def all_rows(x: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """Return the rows of all processes in their order, without a gradient.

    Parameters
    ----------
    x : Tensor of shape (n, ...)
        n may differ between processes, the other sizes and the dtype may not.
    group : ProcessGroup, optional

    Examples
    --------
    >>> all_rows(torch.tensor([[1.0], [2.0]])).shape
    torch.Size([2, 1])
    """
    x = x.detach()
    if n_processes(group) == 1:
        return x
    counts = [torch.zeros(1, dtype=torch.int64, device=x.device) for _ in range(n_processes(group))]
    dist.all_gather(counts, torch.tensor([len(x)], device=x.device), group=group)
    sizes = [int(count) for count in counts]
    # Collectives take equal sizes only: the short ones are filled up.
    padded = x.new_zeros((max(sizes), *x.shape[1:]))
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
