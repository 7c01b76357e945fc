"""Tables from and to files, and tables of any size as record batches, a few columns at a time."""

# In __all__: what users need. The other names are for the packages of frhsic.
from frhsic.sources._address import redact_database as redact_database
from frhsic.sources._batches import open_source
from frhsic.sources._missing import drop_missing as drop_missing
from frhsic.sources._reservoir import Reservoir as Reservoir
from frhsic.sources._shuffle import shuffle
from frhsic.sources._source import Piece as Piece
from frhsic.sources._source import Source
from frhsic.sources._source import cut_runs as cut_runs
from frhsic.sources._sql import open_sql
from frhsic.sources._stores import redact_url as redact_url
from frhsic.sources._tables import absent_error as absent_error
from frhsic.sources._tables import check_suffix as check_suffix
from frhsic.sources._tables import column_names as column_names
from frhsic.sources._tables import has_at_most as has_at_most
from frhsic.sources._tables import read_table, write_table
from frhsic.sources._tables import write_batches as write_batches

__all__ = ["Source", "open_source", "open_sql", "read_table", "shuffle", "write_table"]
