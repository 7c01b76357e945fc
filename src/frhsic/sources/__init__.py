"""Tables from and to files: CSV, Parquet and Arrow, a few columns at a time."""

from frhsic.sources._files import column_names, drop_missing, read_table, replacing, write_table

__all__ = ["column_names", "drop_missing", "read_table", "replacing", "write_table"]
