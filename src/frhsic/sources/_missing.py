"""Missing values of Arrow tables: placeholders that stand for them, and rows without them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from frhsic._checks import ArgumentError
from frhsic.sources._arrow import import_pyarrow, is_text

if TYPE_CHECKING:
    import pyarrow as pa


def drop_missing(
    table: pa.Table | pa.RecordBatch, columns: Sequence[str] | None = None
) -> pa.Table | pa.RecordBatch:
    """Return the rows of a table or record batch in which none of the columns is missing (None or NaN)."""
    pc = import_pyarrow("pyarrow.compute")
    wanted = table.schema.names if columns is None else columns
    masks = [pc.invert(is_missing(table.column(name))) for name in wanted]
    return table.filter(functools.reduce(pc.and_, masks)) if masks else table


def is_missing(column: Any) -> Any:
    floating = import_pyarrow().types.is_floating(column.type)
    return import_pyarrow("pyarrow.compute").is_null(column, nan_is_null=floating)


def check_placeholders(missing_values: object) -> tuple[str, ...]:
    """Return placeholders as text; raise for anything else."""
    if isinstance(missing_values, str) or not isinstance(missing_values, Iterable):
        raise TypeError(
            "'missing_values' must be a list of strings or numbers. "
            f"Got '{type(missing_values).__name__}'. Write ['unknown', -999], say."
        )
    found = tuple(str(value).strip() for value in missing_values)
    if "" in found:
        fix = "Leave it out: empty cells are missing anyway."
        raise ArgumentError("missing_values", "be text or numbers", "an empty one", fix)
    return found


def replace_placeholders(
    table: pa.Table | pa.RecordBatch, placeholders: Sequence[str], *, convert: bool = False
) -> pa.Table | pa.RecordBatch:
    """Return a table with missing values in the place of placeholders.

    With ``convert``, a column of text that has only numbers left then becomes one of numbers.
    """
    if not placeholders:
        return table
    pa, pc = import_pyarrow(), import_pyarrow("pyarrow.compute")
    numbers = []
    for text in placeholders:
        with contextlib.suppress(ValueError):
            numbers.append(float(text))
    fields, columns = list(table.schema), list(table.columns)
    for j, (field, column) in enumerate(zip(fields, columns, strict=True)):
        kind = field.type
        labels = pa.types.is_dictionary(kind)
        values = kind.value_type if labels else kind
        if is_text(values):
            # Only the labels of categories are compared; their type stays.
            text = column.cast(values) if labels else column
            gone = pc.is_in(pc.utf8_trim_whitespace(text), pa.array(placeholders, values))
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            gone = pc.is_in(column.cast(pa.float64(), safe=False), pa.array(numbers, pa.float64()))
        else:
            continue
        if not pc.any(gone).as_py():
            continue
        column = pc.if_else(gone, pa.scalar(None, kind), column)
        if convert and not labels and pa.types.is_string(kind):
            with contextlib.suppress(pa.ArrowInvalid):
                column = column.cast(pa.float64())
        fields[j], columns[j] = field.with_type(column.type), column
    return type(table).from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))
