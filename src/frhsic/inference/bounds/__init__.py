"""Certificates: how much any head could make of a representation, and bounds over classes of encoders."""

from frhsic.inference.bounds._bounds import population_bound as population_bound
from frhsic.inference.bounds._certificate import Certificate as Certificate
from frhsic.inference.bounds._certificate import certify
from frhsic.inference.bounds._channel import ChannelBound as ChannelBound
from frhsic.inference.bounds._channel import channel_bound
from frhsic.inference.bounds._complexity import (
    TrainedOn,
    linear_complexity,
    network_complexity,
    sampled_complexity,
    uniform_bound,
)
from frhsic.inference.bounds._worst_case import worst_case_head

__all__ = [
    "TrainedOn",
    "certify",
    "channel_bound",
    "linear_complexity",
    "network_complexity",
    "sampled_complexity",
    "uniform_bound",
    "worst_case_head",
]
