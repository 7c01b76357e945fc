"""The five datasets of the paper, synthetic tasks, and the paper's preprocessing and splits.

Real data come from their official source, or from a folder given as ``data_home`` or ``FRHSIC_DATA_HOME``.
"""

from frhsic.datasets._acs_income import fetch_acs_income
from frhsic.datasets._adult import fetch_adult
from frhsic.datasets._compas import fetch_compas
from frhsic.datasets._crime import fetch_crime
from frhsic.datasets._files import check_data_home as check_data_home
from frhsic.datasets._meps import fetch_meps
from frhsic.datasets._preprocess import make_preprocessor, paper_split
from frhsic.datasets._synthetic import (
    make_classification,
    make_convergence,
    make_scm,
    make_sinusoidal,
    make_u_shaped,
    make_variance_only,
    make_xor,
)

__all__ = [
    "fetch_acs_income",
    "fetch_adult",
    "fetch_compas",
    "fetch_crime",
    "fetch_meps",
    "make_classification",
    "make_convergence",
    "make_preprocessor",
    "make_scm",
    "make_sinusoidal",
    "make_u_shaped",
    "make_variance_only",
    "make_xor",
    "paper_split",
]
