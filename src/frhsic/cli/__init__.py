"""The command line: tables in; sentences, tables and files out. The only package that prints.

An error is one sentence on stderr and exit code 2; a gate that is not passed is exit code 1. ``--help``
answers at once: packages are used as ``frhsic.sources``, which imports them when they are first asked for,
and other libraries are imported inside the functions that use them.
"""

from frhsic.cli._app import app, run

__all__ = ["app", "run"]
