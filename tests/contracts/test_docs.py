"""Claims about the documentation: its code runs, its links lead somewhere, its words are plain."""

import importlib
import itertools
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import frhsic
from frhsic.sources import write_table

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = ("reference/api/", "reference/options.md", "examples/")  # from code, when the site is built
PAGES = [ROOT / "README.md"] + [
    path
    for path in sorted(DOCS.rglob("*.md"))
    if not path.relative_to(DOCS).as_posix().startswith(MADE) and path.name != "changelog.md"
]
# Tables of numbers written by the benchmarks: their prose is that of the template, their cells are not.
CELLS = DOCS / "evidence" / "reproduction-cells.md"
RETIRED = (
    r"the door|the face|\bhouse\b|\brooms?\b|sets? aside|held in\b|\brefus\w+|lets? through"
    r"|\bwhoever\b|points of 100|by chance alone|\bone has\b|\bis none\b|\bwhat came\b|\bstrengths?\b"
    r"|\btell whether\b|SR 11-7 requires"
)
LONGEST_LINE, LONGEST_PARAGRAPH = 100, 5


def prose(path: Path) -> list[tuple[int, str]]:
    """Return the numbered lines of a page without code, tables, directives, formulas and comments."""
    kept, fence, comment = [], "", False
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        mark = re.match(r"\s*(`{3,}|:{3,}|\${2})", line)
        if fence:
            fence = "" if mark and line.strip().startswith(fence) and fence[0] != ":" else fence
            kept.append((number, ""))
        elif mark and mark[1][0] != ":":
            one_line = mark[1] == "$$" and line.strip().count("$$") > 1
            fence = "" if one_line else mark[1]
            kept.append((number, ""))
        elif comment or "<!--" in line:
            comment = "-->" not in line
            kept.append((number, ""))
        else:
            aside = line.startswith(("|", "    ", ":", "![")) or re.match(r":\w+:", line)
            kept.append((number, "" if aside else line))
    return kept


def paragraphs(path: Path) -> list[list[tuple[int, str]]]:
    """Return the paragraphs and list items of a page."""
    found: list[list[tuple[int, str]]] = [[]]
    for number, line in prose(path):
        item = re.match(r"\s*([-*]|\d+\.)\s", line)
        if not line.strip() or item or line.startswith("#"):
            found.append([])
        if line.strip() and not line.startswith("#"):
            found[-1].append((number, line))
    return [one for one in found if one]


def name(path: Path) -> str:
    """Return a page as it is called in the repository."""
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_uses_plain_words_short_lines_and_short_paragraphs(path):
    lines = prose(path)
    retired = [(number, found) for number, line in lines for found in re.findall(RETIRED, line, re.I)]
    assert not retired, retired
    if path == CELLS:
        return
    long = [number for number, line in lines if len(re.sub(r"\]\([^)]*\)", "]", line)) > LONGEST_LINE]
    assert not long, f"lines above {LONGEST_LINE} characters: {long}"
    heavy = [part[0][0] for part in paragraphs(path) if len(part) > LONGEST_PARAGRAPH]
    assert not heavy, f"paragraphs above {LONGEST_PARAGRAPH} lines start at {heavy}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_the_headings_of_a_page_are_in_order(path):
    levels = [len(line.split()[0]) for _, line in prose(path) if re.match(r"#+ ", line)]
    included = "{include}" in path.read_text()
    assert included or (levels[0] == 1 and levels.count(1) == 1)
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def anchors(path: Path) -> set[str]:
    """Return the names under which the headings of a page are linked."""
    headings = (line.lstrip("#").strip() for _, line in prose(path) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_to_files_and_headings_that_exist(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, heading = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        found = (path.parent / file).resolve() if file else path
        made = found.is_relative_to(DOCS) and found.relative_to(DOCS).as_posix().startswith(MADE)
        assert made or found.exists(), target
        assert not heading or heading in anchors(found), target


def blocks(path: Path) -> list[str]:
    """Return the Python code of a page, without that after a comment which calls it illustrative."""
    found = re.findall(
        r"(<!-- illustrative -->\s*)?^ {0,3}```python\n(.*?)^ {0,3}```", path.read_text(), re.M | re.S
    )
    return [code for illustrative, code in found if not illustrative]


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path)], ids=name)
def test_the_code_of_a_page_runs_as_written(path, tmp_path):
    if "fetch_" in "".join(blocks(path)) and "FRHSIC_DATA_HOME" not in os.environ:
        pytest.skip("needs the real data: set FRHSIC_DATA_HOME")
    ages = [18 + i % 72 for i in range(600)]
    table = {
        "age": ages,
        "income": [20_000.0 + 300 * ((7 * i) % 101) for i in range(600)],
        "score": [(age - 54.0) ** 2 / 1_296 for age in ages],
        "approved": [int((7 * i) % 3 == 0) for i in range(600)],
        "person": [i // 2 for i in range(600)],
    }
    (tmp_path / "scores").mkdir()
    write_table(table, tmp_path / "scores" / "1.parquet")
    write_table(table, tmp_path / "scores.csv")
    (tmp_path / "page.py").write_text("\n\n".join(blocks(path)))
    command = [sys.executable, "page.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_every_public_name_has_an_example_and_others_beside_it(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "_ext")
    import see_also
    from frhsic_pages import PACKAGES

    found = (one.name.removeprefix("frhsic.") for one in pkgutil.walk_packages(frhsic.__path__, "frhsic."))
    public = {one for one in found if not any(part.startswith("_") for part in one.split("."))}
    listed = {one for one in public if hasattr(importlib.import_module(f"frhsic.{one}"), "__all__")}
    assert listed - {"cli"} == set(PACKAGES)  # a command is not an API
    names = [
        f"{package}.{one}"
        for package in PACKAGES
        for one in importlib.import_module(f"frhsic.{package}").__all__
    ]
    assert {one for line in see_also.TOGETHER.split("\n") for one in line.split()} == set(names)
    assert [one for one in names if not see_also.related(one)] == []
    values = {one: see_also.resolve(one) for one in names}
    texts = {one: value.__doc__ or "" for one, value in values.items() if callable(value)}
    assert [one for one, text in texts.items() if ">>>" not in text] == []
