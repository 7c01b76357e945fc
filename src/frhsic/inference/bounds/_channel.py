"""What noise of known size buries: a bound that needs no sample."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import erf

from frhsic._checks import ArgumentError, is_number
from frhsic.inference._results import Result


@dataclass(frozen=True)
class ChannelBound(Result):
    """What no function of a representation behind a Gaussian channel can exceed.

    Attributes
    ----------
    radius, noise : float
    width : int
    any_function : float
        R^2 of any function of S, from any function of Z: at most 2 Phi(radius / noise) - 1.
    ranks : float
        R^2 of the rank of a continuous S: at most that, and at most twice the information in nats.
    information : float
        In nats, about anything: (width / 2) log(1 + radius^2 / (width noise^2)).
    """

    radius: float
    noise: float
    width: int
    any_function: float
    ranks: float
    information: float

    @property
    def vacuous(self) -> bool:
        """Whether it allows all but a hundredth of the variance."""
        return self.ranks > 0.99

    def __str__(self) -> str:
        text = (
            f"No function of Z predicts more than {_up(self.any_function)} of the variance of a function of "
            f"S, nor more than {_up(self.ranks)} of that of its rank, whatever the data: for length at most "
            f"{self.radius:g} and noise of {self.noise:g} in each of {self.width} columns. The same holds "
            "for labels."
        )
        return f"{text} This says nothing: take more noise." if self.vacuous else text


def _up(share: float) -> str:
    """Return a share in percent, rounded up: it is a bound."""
    return f"{math.ceil(1_000.0 * share) / 10.0:g}%"


def channel_bound(radius: float, noise: float, width: int) -> ChannelBound:
    """Return how much of S can be recovered from Z = z + noise, with |z| at most ``radius`` for every row.

    It needs no sample, holds for every S and every law of the rows, and so it caps what Z can tell about
    labels, too.

    Parameters
    ----------
    radius : float
        The largest length of a row of z, enforced by the encoder.
    noise : float
        The standard deviation of the independent Gaussian noise in each column.
    width : int
        The columns of z.

    Returns
    -------
    ChannelBound

    Notes
    -----
    Proofs are in the docs ("Certificates"). Two rows of z are at most 2 radius apart, so the laws of Z given
    them have a total variation distance of at most delta = 2 Phi(radius / noise) - 1. The variance of
    E[g(z) | Z] is at most delta times that of g(z) for every g. With U the rank of S, uniform, the squared
    deviation of E[U | Z] from 1/2 is at most 1/6 of the divergence of the law of U given Z from the uniform
    one, so that R^2 is at most twice their mutual information.

    Examples
    --------
    >>> print(channel_bound(0.2, 1.0, 8))
    No function of Z predicts more than 15.9% of the variance of a function of S, nor more than 4% of that \
of its rank, whatever the data: for length at most 0.2 and noise of 1 in each of 8 columns. The same holds \
for labels.
    """
    for name, value in (("radius", radius), ("noise", noise)):
        if not is_number(value) or not 0 < value < math.inf:
            raise ArgumentError(name, "be a positive number", repr(value), "Pass that of the encoder.")
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ArgumentError("width", "be an integer of at least 1", repr(width), "Pass the columns of Z.")
    ratio = radius / noise
    delta = float(erf(ratio / math.sqrt(2.0)))
    information = 0.5 * width * math.log1p(ratio**2 / width)
    return ChannelBound(radius, noise, width, delta, min(delta, 2.0 * information), information)
