"""Kernels as inner products of features: HSIC in linear time, and as sums over any number of rows."""

from frhsic.sketching._sketch import FeatureHSIC, HSICSketch
from frhsic.sketching._sketch import Line as Line

__all__ = ["FeatureHSIC", "HSICSketch"]
