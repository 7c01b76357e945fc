"""Dependence measures: how much Z tells about S, as differentiable numbers.

Each is a ``torch.nn.Module`` called as ``measure(z, s, weights=None)`` and remembers nothing between calls.
"""

from frhsic.dependence._base import Dependence
from frhsic.dependence.adversary import Adversary
from frhsic.dependence.dcov import DistanceCovariance
from frhsic.dependence.eipm import EIPM
from frhsic.dependence.gdp import GDP
from frhsic.dependence.hgr import KernelHGR
from frhsic.dependence.hsic import HSIC
from frhsic.dependence.mi import MutualInformation
from frhsic.dependence.mmd import BinnedMMD
from frhsic.dependence.rank_gap import RankGap
from frhsic.dependence.rank_gap import mid_ranks as mid_ranks
from frhsic.dependence.recovered import RecoveredVariance
from frhsic.dependence.score_gap import ScoreGap

__all__ = [
    "EIPM",
    "GDP",
    "HSIC",
    "Adversary",
    "BinnedMMD",
    "Dependence",
    "DistanceCovariance",
    "KernelHGR",
    "MutualInformation",
    "RankGap",
    "RecoveredVariance",
    "ScoreGap",
]
