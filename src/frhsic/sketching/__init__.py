"""Kernels as inner products of features: HSIC in linear time, and as sums over any number of rows."""

from frhsic.sketching._sketch import FeatureHSIC, HSICSketch

__all__ = ["FeatureHSIC", "HSICSketch"]
