"""What a class of encoders costs: Gaussian complexity, and the train-to-population bound B_n.

The empirical Gaussian complexity of a class H of encoders on rows x_1, ..., x_n is, with independent standard
normal vectors xi_i,

    G_n(H) = E sup_{h in H} (1/n) sum_i <xi_i, h(x_i)>.

The classes here are fixed by norms *before* training; docs/explain/certificates.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from frhsic._checks import ArgumentError, check_confidence_level
from frhsic.data import to_generator, to_matrix

# The largest slope of SELU, the activation between the layers of the estimators' encoder: scale x alpha.
SELU_SLOPE = 1.0507009873554805 * 1.6732632423543772


@dataclass(frozen=True)
class TrainedOn:
    """What is known of the training rows: how many, the dependence on them, and the encoder's class.

    Parameters
    ----------
    n : int
        Training rows.
    hsic : float
        The biased HSIC on them, with the kernels of the certificate, which must have been fixed before
        training (and on other rows) for the bound to hold.
    complexity : float
        G_n of the class of encoders, from :func:`linear_complexity` or :func:`network_complexity`.

    Examples
    --------
    >>> TrainedOn(n=100, hsic=0.001, complexity=linear_complexity(2.0, 1.0, 4, n=100))
    TrainedOn(n=100, hsic=0.001, complexity=0.4)
    """

    n: int
    hsic: float
    complexity: float

    def __post_init__(self) -> None:
        _check_rows(self.n)
        for name in ("hsic", "complexity"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                fix = "Take the biased HSIC of the training rows and a bound of network_complexity."
                raise ArgumentError(name, "be a number of at least 0", repr(value), fix)


def linear_complexity(radius: float, bound_x: float, d_z: int, n: int) -> float:
    """Return R M sqrt(d_z / n), a bound on G_n of the encoders x -> W x with |W|_F <= R on rows |x| <= M.

    The paper's paragraph "Encoder classes covered by the rate".

    Parameters
    ----------
    radius : float
        R, the largest Frobenius norm, chosen before training.
    bound_x : float
        M, the largest norm of a row of x.
    d_z : int
        Columns of z.
    n : int
        Training rows.

    Examples
    --------
    >>> linear_complexity(2.0, 1.0, 4, 100)
    0.4
    """
    return network_complexity((radius,), (d_z,), bound_x, n, biases=False)


def network_complexity(
    radii: Sequence[float],
    widths: Sequence[int],
    bound_x: float,
    n: int,
    *,
    slope: float = SELU_SLOPE,
    biases: bool = True,
    homogeneous: bool = False,
) -> float:
    """Return a bound on G_n of the networks W_D a(W_{D-1} a(... a(W_1 x))) with |W_j|_F <= R_j.

    For any activation a with a(0) = 0 and slopes of at most L, by the Sudakov-Fernique inequality,

        G_n <= L^(D-1) R_1 ... R_D M (sum_j s_j^(2/3))^(3/2) / sqrt(n),

    with s_1 = sqrt(h_1), s_j = sqrt(h_j h_{j-1}) and widths h_1, ..., h_D. At D = 2 this is at most
    sqrt(2) L R_1 R_2 M (sqrt(h_2 h_1) + sqrt(h_1)) / sqrt(n). For activations that are also positively
    homogeneous (ReLU) the widths of the hidden layers do not matter,

        G_n <= L^(D-1) R_1 ... R_D M min(sqrt(d_z) min_p 2^((D-1)/p) sqrt(p - 1),
                                         d_z (1 + sqrt(2 (D-1) ln 2))) / sqrt(n),

    the second after Golowich, Rakhlin and Shamir (2018), summed over outputs. Proofs:
    docs/explain/certificates.md.

    Parameters
    ----------
    radii : sequence of float
        R_1, ..., R_D, chosen *before* training; radii read off the trained network give no guarantee.
    widths : sequence of int
        h_1, ..., h_D; the last is the number of columns of z.
    bound_x : float
        M, the largest norm of a row of x.
    n : int
        Training rows.
    slope : float, default=1.7581
        L; that of SELU. ReLU has 1.
    biases : bool, default=True
        Whether layers have biases; R_j is then the norm of the matrix with the bias as one more column.
    homogeneous : bool, default=False
        Whether a(c t) = c a(t) for c >= 0. It is not so for SELU. Needs ``biases=False``.

    Examples
    --------
    >>> round(network_complexity((1.0, 1.0), (50, 50), 1.0, 10_000, biases=False), 2)
    1.26
    >>> relu = {"slope": 1.0, "biases": False, "homogeneous": True}
    >>> round(network_complexity((1.0, 1.0), (50, 50), 1.0, 10_000, **relu), 2)
    0.1
    """
    depth = len(radii)
    if depth == 0 or depth != len(widths):
        fix = "For a linear encoder pass one radius and the number of columns of z."
        got = f"{depth} and {len(widths)}"
        raise ValueError(f"'radii' and 'widths' must have one entry for each layer. Got {got}. {fix}")
    positive = {"radii": tuple(radii), "widths": tuple(widths), "bound_x": (bound_x,), "slope": (slope,)}
    for name, values in positive.items():
        if not all(0 < value < math.inf for value in values):
            fix = "State what held before training."
            raise ArgumentError(name, "be positive and finite", repr(values), fix)
    _check_rows(n)
    if homogeneous and biases:
        must = "be False for layers with biases: they are not positively homogeneous"
        fix = "Pass biases=False, or homogeneous=False."
        raise ArgumentError("homogeneous", must, "True with biases=True", fix)
    bound = _sudakov_fernique(radii, widths, bound_x, slope, biases)
    if homogeneous:
        bound = min(bound, _homogeneous(depth, widths[-1], radii, bound_x, slope))
    return bound / math.sqrt(n)


def _sudakov_fernique(
    radii: Sequence[float], widths: Sequence[int], bound_x: float, slope: float, biases: bool
) -> float:
    """Return sqrt(n) G_n by comparing the network with a process that is linear in each layer."""
    depth, extra = len(radii), float(biases)  # a bias is a weight on a constant one
    inside = math.sqrt(bound_x**2 + extra)  # the largest norm of what enters the layer
    terms = []
    for j in range(depth):
        later = slope ** (depth - 1 - j) * math.prod(radii[j + 1 :])
        # The first layer sees known rows, and E |sum_i eta_i x_i'|_F needs no count of its columns.
        size = widths[0] if j == 0 else widths[j] * (widths[j - 1] + extra)
        terms.append(later * radii[j] * inside * math.sqrt(size))
        inside = math.sqrt((slope * radii[j] * inside) ** 2 + extra)
    return float(sum(term ** (2.0 / 3.0) for term in terms) ** 1.5)


def _homogeneous(depth: int, d_z: int, radii: Sequence[float], bound_x: float, slope: float) -> float:
    moments = (2.0 ** ((depth - 1) / p) * math.sqrt(p - 1.0) for p in range(2, 2 * depth + 3))
    summed = d_z * (1.0 + math.sqrt(2.0 * (depth - 1) * math.log(2.0)))
    return slope ** (depth - 1) * math.prod(radii) * bound_x * min(math.sqrt(d_z) * min(moments), summed)


def sampled_complexity(
    x: object,
    radii: Sequence[float],
    widths: Sequence[int],
    *,
    activation: Callable[[Tensor], Tensor] = torch.nn.functional.selu,
    n_draws: int = 4,
    steps: int = 60,
    random_state: object = None,
) -> float:
    """Return a *lower* bound on G_n, by gradient ascent over the class for a few draws of xi.

    It certifies nothing: it tells how loose :func:`network_complexity` may be. Networks have no biases here.

    Parameters
    ----------
    x : array, tensor or frame of shape (n, d)
    radii, widths
        As in :func:`network_complexity`.
    activation : callable, default=torch.nn.functional.selu
    n_draws : int, default=4
    steps : int, default=60
        Of ascent, from a random start, for each draw.
    random_state : None, int or generator

    Examples
    --------
    >>> x = torch.ones(100, 1, dtype=torch.float64)
    >>> low = sampled_complexity(x, (1.0,), (1,), n_draws=50, random_state=0)
    >>> 0 < low < linear_complexity(1.0, 1.0, 1, 100)
    True
    """
    rows, generator = to_matrix(x, name="x"), to_generator(random_state)
    sizes = (rows.shape[1], *widths)
    best = []
    for _ in range(n_draws):
        xi = torch.randn((len(rows), sizes[-1]), generator=generator, dtype=torch.float64)
        layers = [
            torch.randn((size, wide), generator=generator, dtype=torch.float64)
            for size, wide in zip(sizes[1:], sizes[:-1], strict=True)
        ]
        best.append(_ascent(rows, xi, layers, radii, activation, steps))
    return sum(best) / n_draws


def _ascent(
    x: Tensor,
    xi: Tensor,
    layers: list[Tensor],
    radii: Sequence[float],
    activation: Callable[[Tensor], Tensor],
    steps: int,
) -> float:
    """Return the largest value met; each step turns the layers towards their gradients, at their radii.

    The value is linear in the last layer, which is set to its exact maximum given the others before them.
    """
    layers = [R * W / _norm(W) for W, R in zip(layers, radii, strict=True)]
    best = 0.0  # W_D = 0 is in the class
    for _ in range(steps):
        leaves = [W.detach().requires_grad_() for W in layers]
        h = x
        for j, W in enumerate(leaves):
            h = (activation(h) if j else h) @ W.mT
        value = (xi * h).sum() / len(x)
        best = max(best, float(value.detach()))
        gradients = torch.autograd.grad(value, leaves)
        # Half way towards the gradient's direction: the whole step overshoots in layers that enter
        # nonlinearly.
        ahead = [R * G / _norm(G) for G, R in zip(gradients, radii, strict=True)]
        half = [W + A for W, A in zip(layers[:-1], ahead[:-1], strict=True)]
        layers = [R * W / _norm(W) for W, R in zip(half, radii[:-1], strict=True)] + ahead[-1:]
    return best


def _norm(W: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(W).clamp_min(1e-300)


def uniform_bound(
    n: int, confidence_level: float, nu_z: float, nu_s: float, lip_z: float, lip_s: float, complexity: float
) -> float:
    """Return B_n, which bounds |HSIC_b - HSIC| for all encoders of a class with this confidence.

    Theorem "Uniform concentration of empirical HSIC over the encoder class", equation ``Bn_explicit``:

        nu_z nu_s [ 8 sqrt(2) sqrt(log(2 / delta) / n) + 4 / n
                    + 48 sqrt(pi) max(l_s / sqrt(nu_s), l_z / sqrt(nu_z)) G_n ],

    the theorem for the kernels divided by their bounds. At nu_z = nu_s = 1 it is the paper's; otherwise the
    paper has max(nu_z l_s, nu_s l_z), which does not scale with the kernels as HSIC does, and fails
    (``tests/theory/test_section5_uniform_concentration.py``).

    Parameters
    ----------
    n : int
        Rows on which the encoder was trained.
    confidence_level : float
        1 - delta.
    nu_z, nu_s : float
        ``kernel.bound``: the largest k(x, x).
    lip_z, lip_s : float
        ``kernel.lipschitz``.
    complexity : float
        G_n; zero for one encoder that was fixed before these rows were seen.

    Examples
    --------
    >>> round(uniform_bound(10_000, 0.95, 1.0, 1.0, 1.0, 1.0, 0.0), 3)
    0.218
    """
    _check_rows(n)
    check_confidence_level(confidence_level)
    delta = 1.0 - confidence_level
    chance = 8.0 * math.sqrt(2.0) * math.sqrt(math.log(2.0 / delta) / n)
    steepest = max(lip_s / math.sqrt(nu_s), lip_z / math.sqrt(nu_z))
    # 0 * inf: without a class the Lipschitz constants do not enter.
    learned = 48.0 * math.sqrt(math.pi) * steepest * complexity if complexity else 0.0
    return nu_z * nu_s * (chance + 4.0 / n + learned)


def _check_rows(n: int) -> None:
    if not n >= 2:
        raise ArgumentError("n", "be at least 2", repr(n), "Pass the number of training rows.")
