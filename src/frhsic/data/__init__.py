"""Validation and conversion of inputs: any frame or array becomes float64 tensors, checked once, here.

Lists, tuples, numpy, torch, pandas, polars and pyarrow columns and frames and dicts of columns are accepted;
the results are dense and finite tensors on the CPU. They may share memory with the input: read them, never
write to them. The kind of a sensitive column is never guessed from its values: numbers are continuous
(integers too), strings, booleans and categories are categorical, and ``kinds=`` overrides. Text that is
mostly numbers could be meant as either, so it is an error unless ``kinds=`` says which.

Privacy: an error message names arguments, columns, types, counts and row numbers, never a data value. The
exception are labels that cannot be corrected unseen (unknown categories, text that is no number, and the
labels they are compared with): at most five, each cut to 40 characters; of text that is mostly numbers at
most three entries, each cut to 20. For the same reason an error hides its cause (``from None``): the messages
of other libraries quote the values on which they fail.
"""

# In __all__: what users need. The other names are for the packages of frhsic.
from frhsic.data._alignment import check_aligned as check_aligned
from frhsic.data._alignment import check_length as check_length
from frhsic.data._alignment import get_index as get_index
from frhsic.data._block import Block as Block
from frhsic.data._block import to_label as to_label
from frhsic.data._codes import suspicious_codes as suspicious_codes
from frhsic.data._convert import to_groups as to_groups
from frhsic.data._convert import to_matrix, to_weights
from frhsic.data._convert import to_vector as to_vector
from frhsic.data._labels import LabelRows as LabelRows
from frhsic.data._labels import LabelSplit as LabelSplit
from frhsic.data._labels import check_kept as check_kept
from frhsic.data._labels import choose_positive as choose_positive
from frhsic.data._labels import split_labels as split_labels
from frhsic.data._random import to_generator as to_generator
from frhsic.data._reading import read_blocks as read_blocks
from frhsic.data._reading import read_columns as read_columns
from frhsic.data._reading import wrap_native as wrap_native
from frhsic.data._sensitive import Kind as Kind
from frhsic.data._sensitive import Label as Label
from frhsic.data._sensitive import Sensitive
from frhsic.data._sensitive import check_finite as check_finite
from frhsic.data._take import drop_columns as drop_columns
from frhsic.data._take import take_rows as take_rows
from frhsic.data._to_sensitive import to_sensitive

__all__ = ["Sensitive", "to_matrix", "to_sensitive", "to_weights"]
