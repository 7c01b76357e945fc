"""Tables, figures and the page of the reproduction are what the committed results say."""

import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import image
from PIL import Image

from benchmarks.paper.reproduction import contents, page
from benchmarks.paper.reproduction._draw import FOLDER, keep

PUBLISHED = Path(os.environ.get("FRHSIC_DATA_HOME", ".")).parent / "published"
pytestmark = pytest.mark.skipif(
    not PUBLISHED.exists(), reason="the published tables are not beside FRHSIC_DATA_HOME"
)


def same_text(made, kept):
    ours, theirs = made.splitlines(), kept.splitlines()
    for number, (line, other) in enumerate(zip(ours, theirs, strict=False), 1):
        assert line == other, f"line {number}; python -m benchmarks page writes it again"
    assert len(ours) == len(theirs)


def test_the_page_is_what_the_results_say():
    same_text(page.page(), page.PAGE.read_text())


def test_the_cells_are_what_the_results_say():
    same_text(page.cells(), page.CELLS.read_text())


@pytest.mark.parametrize("name", contents.FIGURES)
def test_the_figure_is_what_the_results_say(name, tmp_path):
    made, kept = keep(contents.FIGURES[name](), name, tmp_path), FOLDER / f"{name}.png"
    with Image.open(kept) as picture:
        drawn_by = picture.info["Software"]
    ours, theirs = image.imread(made), image.imread(kept)
    assert ours.shape == theirs.shape
    if drawn_by == f"matplotlib {mpl.__version__}":  # letters may differ by pixels between versions
        np.testing.assert_allclose(ours, theirs, atol=1 / 255)


@pytest.mark.parametrize("name", contents.TABLES)
def test_every_row_of_a_table_has_its_columns(name):
    blocks = [part for part in contents.TABLES[name]().split("\n\n") if part.startswith("|")]
    assert blocks
    for block in blocks:
        assert len({line.count("|") for line in block.strip().splitlines() if line.startswith("|")}) == 1


def test_every_figure_and_no_other_is_on_the_page():
    text = page.PAGE.read_text()
    assert {path.stem for path in FOLDER.glob("*.png")} == set(contents.FIGURES)
    for name in contents.FIGURES:
        assert f"figures/reproduction/{name}.png" in text


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(SystemExit, match=r"must be of main, .*Got nothing"):
        contents.TABLE.run(type("Arguments", (), {"names": ["nothing"]}))
