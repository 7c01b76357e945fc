"""Tables from and to files, and tables of any size as record batches, a few columns at a time."""

from frhsic._files import replacing
from frhsic.sources._batches import open_source
from frhsic.sources._files import absent_columns as absent_error
from frhsic.sources._files import check_suffix as check_suffix
from frhsic.sources._files import column_names, drop_missing, read_table, write_table
from frhsic.sources._shuffle import shuffled
from frhsic.sources._source import Piece, Source
from frhsic.sources._sql import open_sql
from frhsic.sources._stores import shown as redact_url

__all__ = [
    "Piece",
    "Source",
    "absent_error",
    "check_suffix",
    "column_names",
    "drop_missing",
    "open_source",
    "open_sql",
    "read_table",
    "redact_url",
    "replacing",
    "shuffled",
    "write_table",
]
