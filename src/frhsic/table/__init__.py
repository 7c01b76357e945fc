"""The audit of a score as a function of one small table of counts."""

from frhsic.table._axis import Axis
from frhsic.table._axis import Floats as Floats
from frhsic.table._axis import Integers as Integers
from frhsic.table._draw import draw_rows as draw_rows
from frhsic.table._kernel_errors import KernelErrors as KernelErrors
from frhsic.table._kernels import Bandwidths as Bandwidths
from frhsic.table._kernels import Side as Side
from frhsic.table._kernels import median_distance as median_distance
from frhsic.table._left_out import CellBounds as CellBounds
from frhsic.table._left_out import LeftOut as LeftOut
from frhsic.table._left_out import left_out as left_out
from frhsic.table._limits import GapErrors as GapErrors
from frhsic.table._limits import GapLimits as GapLimits
from frhsic.table._measures import coarse_cells as coarse_cells
from frhsic.table._measures import differences as differences
from frhsic.table._measures import hsic as hsic
from frhsic.table._null import TableTest as TableTest
from frhsic.table._null import independence as independence
from frhsic.table._persons import Persons as Persons
from frhsic.table._pvalues import combine as combine
from frhsic.table._pvalues import rank_pvalue as rank_pvalue
from frhsic.table._scout import Extent as Extent
from frhsic.table._scout import Scout as Scout
from frhsic.table._table import CELLS as CELLS
from frhsic.table._table import JOINT_CELLS as JOINT_CELLS
from frhsic.table._table import LEVELS as LEVELS
from frhsic.table._table import Column as Column
from frhsic.table._table import Labels as Labels
from frhsic.table._table import Law as Law
from frhsic.table._table import ScoreTable
from frhsic.table._table import weight_units as weight_units

__all__ = ["Axis", "ScoreTable"]
