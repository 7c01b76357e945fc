"""Tables from and to files, and tables of any size as record batches, a few columns at a time."""

from frhsic._files import replacing
from frhsic.sources._batches import open_source
from frhsic.sources._files import column_names, drop_missing, read_table, write_table
from frhsic.sources._shuffle import shuffled
from frhsic.sources._source import Piece, Source
from frhsic.sources._sql import open_sql

__all__ = [
    "Piece",
    "Source",
    "column_names",
    "drop_missing",
    "open_source",
    "open_sql",
    "read_table",
    "replacing",
    "shuffled",
    "write_table",
]
