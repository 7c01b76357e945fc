"""scikit-learn estimators: classifier, regressor, encoder, and the encoder of tables."""

from frhsic.estimators._models import FRHSICClassifier, FRHSICEncoder, FRHSICRegressor
from frhsic.estimators._path import fit_path
from frhsic.estimators._scaling import Scaling as Scaling
from frhsic.estimators._table import TableEncoder

__all__ = ["FRHSICClassifier", "FRHSICEncoder", "FRHSICRegressor", "TableEncoder", "fit_path"]
