"""Networks and losses: an encoder h, a head f, and what a prediction costs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from frhsic._checks import ArgumentError

Layers: TypeAlias = Sequence[int] | nn.Module
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


class Net(nn.Module):
    """An encoder and a head: x ``(n, p)`` -> z ``(n, d)`` -> prediction ``(n, k)``; noise is of a channel."""

    def __init__(self, encoder: nn.Module, head: nn.Module, noise: float = 0.0) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.noise = noise

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the representation and the prediction."""
        return _pass_on(self, x)

    def nets(self) -> list[Net]:
        """Return the net alone, as a stack returns its nets."""
        return [self]

    def gradients(self) -> list[list[Tensor]]:
        """Return the gradients of the net, as a stack returns those of its nets."""
        return [_gradients(self)]


def send(z: Tensor, noise: float, generator: torch.Generator | None = None) -> Tensor:
    """Return rows of z through a Gaussian channel: held within the unit ball, plus noise; as they are at 0.

    The ball is what :func:`frhsic.inference.channel_bound` takes for the radius 1.
    """
    if not noise:
        return z
    return hold(z) + noise * torch.randn(z.shape, dtype=z.dtype, device=z.device, generator=generator)


def hold(z: Tensor) -> Tensor:
    """Return rows of z held within the unit ball."""
    length = z.norm(dim=-1, keepdim=True).clamp_min(1e-9)
    return z * (torch.tanh(length) / length)


def _pass_on(net: Net | Stack, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return z with the noise of a channel, and the prediction: noisy in training, from the held z after it.

    Z is what leaves; a score of the net's own head is that of one person, whatever rows stand beside.
    """
    plain = net.encoder(x)
    z = send(plain, net.noise)
    return z, net.head(z if net.training or not net.noise else hold(plain))


class Stack(nn.Module):
    """Nets of one architecture, evaluated together: x ``(n, p)`` -> z ``(m, n, d)`` -> ``(m, n, k)``.

    Linear layers with activations between them become batched products; other modules are called one after
    the other, so that every architecture may be stacked. The nets are copied.
    """

    def __init__(self, nets: Sequence[Net]) -> None:
        super().__init__()
        self.encoder = _stack([net.encoder for net in nets])
        self.head = _stack([net.head for net in nets])
        self.noise = nets[0].noise

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the representations and the predictions."""
        return _pass_on(self, x)

    def nets(self) -> list[Net]:
        """Return each net by itself, a copy."""
        both = zip(self.encoder.apart(), self.head.apart(), strict=True)
        return [Net(encoder, head, self.noise) for encoder, head in both]

    def gradients(self) -> list[list[Tensor]]:
        """Return the gradients of each net; changing them in place changes those of the stack."""
        return [a + b for a, b in zip(self.encoder.gradients(), self.head.gradients(), strict=True)]


class _Products(nn.Module):
    """Linear layers and activations of m nets as batched products."""

    def __init__(self, modules: Sequence[nn.Sequential]) -> None:
        super().__init__()
        self._like = [copy.deepcopy(modules[0])]  # in a list: its own parameters are not trained
        self.count = len(modules)
        states = [dict(module.named_parameters()) for module in modules]
        self.values = nn.ParameterList(
            nn.Parameter(torch.stack([state[name].detach() for state in states])) for name in states[0]
        )

    def extra_repr(self) -> str:
        """Return the layers of one net: a checkpoint knows its run by them."""
        return repr(self._like[0])

    def forward(self, x: Tensor) -> Tensor:
        """Return what each net makes of x, ``(n, p)`` or ``(m, n, p)``: ``(m, n, d)``."""
        values = iter(self.values)
        for layer in self._like[0]:
            if not isinstance(layer, nn.Linear):
                x = layer(x)
                continue
            weight = next(values)  # (m, d, p)
            bias = None if layer.bias is None else next(values)
            if x.ndim == 2:
                # One product for all nets while they share their rows.
                wide = nn.functional.linear(x, weight.flatten(0, 1), None if bias is None else bias.flatten())
                x = wide.unflatten(1, weight.shape[:2]).transpose(0, 1)
            elif bias is None:
                x = torch.bmm(x, weight.mT)
            else:
                x = torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
        return x if x.ndim == 3 else x.expand(self.count, *x.shape)

    def apart(self) -> list[nn.Module]:
        """Return each module by itself, a copy."""
        found: list[nn.Module] = [copy.deepcopy(self._like[0]) for _ in range(self.count)]
        for k, module in enumerate(found):
            for own, value in zip(module.parameters(), self.values, strict=True):
                own.data = value.detach()[k].clone()
        return found

    def gradients(self) -> list[list[Tensor]]:
        """Return the gradients of each module, as views."""
        stacked = _gradients(self)
        return [[gradient[k] for gradient in stacked] for k in range(self.count)]


class _OneByOne(nn.Module):
    """Any modules, called in turn."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.modules_ = nn.ModuleList(copy.deepcopy(module) for module in modules)

    def forward(self, x: Tensor) -> Tensor:
        """Return what each module makes of x, ``(n, p)`` or ``(m, n, p)``: ``(m, n, d)``."""
        each = [x] * len(self.modules_) if x.ndim == 2 else x.unbind()
        return torch.stack([module(part) for module, part in zip(self.modules_, each, strict=True)])

    def apart(self) -> list[nn.Module]:
        """Return each module by itself, a copy."""
        return [copy.deepcopy(module) for module in self.modules_]

    def gradients(self) -> list[list[Tensor]]:
        """Return the gradients of each module."""
        return [_gradients(module) for module in self.modules_]


def _gradients(module: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


# They act on each number by itself, without parameters or memory.
_ELEMENTWISE = (
    nn.SELU,
    nn.ReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.LeakyReLU,
    nn.Identity,
)


def _stack(modules: Sequence[nn.Module]) -> _Products | _OneByOne:
    first = modules[0]
    plain = (
        type(first) is nn.Sequential
        and all(type(layer) is nn.Linear or type(layer) in _ELEMENTWISE for layer in first)
        and any(type(layer) is nn.Linear for layer in first)
        and all(value.requires_grad for value in first.parameters())
        # A layer that stands in two places has its parameters once.
        and len(list(first.parameters())) == sum(len(list(layer.parameters())) for layer in first)
        and not any(layer._forward_hooks or layer._forward_pre_hooks for layer in first.modules())
    )
    if plain:
        return _Products([module for module in modules if isinstance(module, nn.Sequential)])
    return _OneByOne(modules)


def make_net(
    inputs: int,
    outputs: int,
    *,
    encoder: Layers = (50, 50),
    head: Layers = (),
    noise: float = 0.0,
    generator: torch.Generator | None = None,
) -> Net:
    """Make the network: layers from sizes, drawn from the generator, or copies of the caller's modules.

    Parameters
    ----------
    inputs : int
        Columns of x.
    outputs : int
        Columns of the prediction.
    encoder : sequence of int or nn.Module, default=(50, 50)
        Widths of the layers, the last one that of z; SELU between them. The default is the paper's.
    head : sequence of int or nn.Module, default=()
        Widths of hidden layers; none is the paper's linear head.
    noise : float, default=0.0
        The standard deviation of the noise of a Gaussian channel between them; 0 is none.
    generator : torch.Generator, optional
        None draws from fresh entropy.

    Examples
    --------
    >>> sum(p.numel() for p in make_net(107, 1).parameters())
    8001
    """
    if isinstance(encoder, nn.Module):
        first: nn.Module = copy.deepcopy(encoder)
        width = encoded_width(first, inputs)
    else:
        sizes = check_layers(encoder, "encoder", empty=False)
        first, width = _mlp((inputs, *sizes), generator), sizes[-1]
    if isinstance(head, nn.Module):
        return Net(first, copy.deepcopy(head), noise)
    return Net(first, _mlp((width, *check_layers(head, "head", empty=True), outputs), generator), noise)


def check_layers(layers: Any, name: str, *, empty: bool) -> tuple[int, ...]:
    """Return widths of layers, or raise ArgumentError."""
    try:
        sizes = tuple(layers)
        good = all(int(size) == size and size >= 1 and not isinstance(size, bool) for size in sizes)
    except (TypeError, ValueError):
        sizes, good = (), False
    if not good or isinstance(layers, str) or not (sizes or empty):
        must = "be a torch module or a sequence of positive widths"
        raise ArgumentError(name, must, repr(layers), "Write (50, 50) for the paper's encoder.")
    return tuple(int(size) for size in sizes)


def _mlp(sizes: Sequence[int], generator: torch.Generator | None) -> nn.Sequential:
    """Return linear layers with SELU between them, initialised like PyTorch's own, from the generator."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        # skip_init: the layer must not draw from the global generator first.
        layer = nn.utils.skip_init(nn.Linear, fan_in, fan_out)
        for values in layer.parameters():  # weights, then biases
            values.data.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)
        layers += [layer, nn.SELU()]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def encoded_width(encoder: nn.Module, inputs: int) -> int:
    """Return the columns of what a module makes of x."""
    was_training = encoder.training
    first = next(iter(encoder.parameters()), torch.zeros(()))
    try:
        z = encoder.eval()(torch.zeros(2, inputs).to(first))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        must = f"be a module that takes tensors of shape (n, {inputs}) in float32 and float64"
        fix = f"Make its first layer {inputs} columns wide, its tensors buffers."
        raise ArgumentError("encoder", must, f"an error from it: {error}", fix) from error
    finally:
        encoder.train(was_training)
    if not isinstance(z, Tensor) or z.ndim != 2 or len(z) != 2 or not z.is_floating_point():
        got = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        must = "return a float tensor of shape (n, d) for n rows"
        raise ArgumentError("encoder", must, f"{got} for 2 rows", "Flatten what it returns to one row each.")
    return z.shape[1]


def binary_cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return -log P(y) for logits ``(..., n, 1)`` and y in {0, 1} ``(n,)``, shape ``(..., n)``."""
    logits = prediction.squeeze(-1)
    return nn.functional.binary_cross_entropy_with_logits(logits, y.expand_as(logits), reduction="none")


def cross_entropy(prediction: Tensor, y: Tensor) -> Tensor:
    """Return -log P(y) for logits ``(..., n, k)`` and codes y ``(n,)``, shape ``(..., n)``."""
    index = y.long().unsqueeze(-1).expand(*prediction.shape[:-1], 1)
    return -prediction.log_softmax(dim=-1).gather(-1, index).squeeze(-1)


def squared_error(prediction: Tensor, y: Tensor) -> Tensor:
    """Return the squared error ``(..., n)``, averaged over columns; y is ``(n,)`` or ``(n, k)``."""
    target = y.unsqueeze(-1) if y.ndim == 1 else y
    return (prediction - target).square().mean(dim=-1)
