"""The command line: tables in; sentences, tables and files out. The only package that prints.

An error is one sentence on stderr and exit code 2; a gate that is not passed is exit code 1. Libraries are
imported inside the functions that use them, so that ``--help`` answers at once.
"""

from frhsic.cli._app import app, run

__all__ = ["app", "run"]
