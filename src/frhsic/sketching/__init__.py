"""Kernels as inner products of features: HSIC in linear time, and as sums over any number of rows."""

from frhsic.sketching._error import FeatureError as FeatureError
from frhsic.sketching._feature_sums import FeatureSums as FeatureSums
from frhsic.sketching._measure import FeatureHSIC
from frhsic.sketching._sketch import HSICSketch

__all__ = ["FeatureHSIC", "HSICSketch"]
