"""Tables from and to files: CSV, Parquet and Arrow, a few columns at a time."""

from frhsic.sources._files import column_names, drop_missing, read_table, write_table
from frhsic.sources._whole import replacing

__all__ = ["column_names", "drop_missing", "read_table", "replacing", "write_table"]
