"""What several test files share."""

import itertools
import math

import numpy as np


def gaussian_pair(n=120, rho=0.5, seed=0):
    """z and s of n rows, standard normal with correlation rho."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    return rho * s + math.sqrt(1 - rho**2) * rng.normal(size=n), s


def median_distance(x):
    """The lower median of the distances between rows."""
    x = np.asarray(x, float).reshape(len(x), -1)
    gaps = [math.dist(a, b) for a, b in itertools.combinations(x, 2)]
    return sorted(gaps)[(len(gaps) - 1) // 2]
