"""Certificates: how much any head could make of a representation, and bounds over classes of encoders."""

from frhsic.inference.bounds._bounds import Bound
from frhsic.inference.bounds._certificate import Certificate, certify
from frhsic.inference.bounds._complexity import (
    TrainedOn,
    linear_complexity,
    network_complexity,
    sampled_complexity,
    uniform_bound,
)
from frhsic.inference.bounds._worst_case import HeadRow, WorstHead, worst_case_head

__all__ = [
    "Bound",
    "Certificate",
    "HeadRow",
    "TrainedOn",
    "WorstHead",
    "certify",
    "linear_complexity",
    "network_complexity",
    "sampled_complexity",
    "uniform_bound",
    "worst_case_head",
]
