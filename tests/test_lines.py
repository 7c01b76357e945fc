"""The command that counts lines of code and prints import circles."""

import importlib.util
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("lines", ROOT / ".ci" / "lines.py")
lines = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lines)

TEXT = '''"""A module.

Two paragraphs.
"""

import math  # a comment

# Only a comment.
TABLE = {
    "a": 1,

    "b": 2,  # and one here
}


def area(r):
    """Return the area."""
    text = """of
    two lines"""
    return math.pi * r * r, text
'''


def test_docstrings_comments_and_blank_lines_are_not_counted():
    # import; five lines of the table, with the blank one inside it not counted; def; two of text; return
    assert lines.count_lines(TEXT) == 1 + 4 + 1 + 2 + 1
    assert lines.count_lines("") == 0


def test_circles_are_sets_of_modules_that_import_one_another():
    graph = grimp.ImportGraph()
    for importer, imported in ("ab", "bc", "ca", "cd", "de", "ed", "fa", "fd"):
        graph.add_import(importer=importer, imported=imported)
    graph.add_module("g")
    assert lines.find_circles(graph) == [["a", "b", "c"], ["d", "e"]]


def test_no_import_circle_has_more_than_three_files():
    circles = lines.find_circles(grimp.build_graph("frhsic"))
    assert [circle for circle in circles if len(circle) > lines.LARGEST_CIRCLE] == []


def test_no_package_imports_one_of_its_layer_or_above():
    assert lines.find_arrows_up(grimp.build_graph("frhsic")) == []
