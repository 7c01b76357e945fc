"""An audit as Markdown: the numbers of the audit, nothing that users typed becomes more than text, no row."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt

from frhsic._text import shown
from frhsic.auditing import audit, limit_sentence, make_tiles
from frhsic.cli import run

NAMES = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a|b||c \\| d \\",
    "`code` ``two`` ```",
    "[x](javascript:alert(1)) ![y](http://z.example/p.png) [x][y]",
    "<javascript:alert(1)> <http://z.example> http://z.example www.z.example me@z.example",
    "two\nlines\n\n# heading\n- item\n\n    code\r\nmore\u2028x\u2029y",
    "**bold** _em_ __init__ *x* ~~gone~~ $x^2$ &lt;b&gt; &amp; &#124; # #",
    "| --- | --- |",
    "<!-- comment",
    "x" * 300,
    "a [link](javascript:alert(1))",
    "#1 #",
]
KINDS = {"h1", "h2", "h3", "p", "ul", "li", "strong", "code", "table", "thead", "tbody", "tr", "th", "td"}


class Page(HTMLParser):
    """The elements of HTML and their texts."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self._open = [], [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.texts.append([tag, ""])
        self._open.append(len(self.texts) - 1)

    def handle_endtag(self, tag):
        self._open.pop()

    def handle_comment(self, data):
        raise AssertionError(data)

    def handle_data(self, data):
        for one in self._open:
            self.texts[one][1] += data

    def of(self, tag):
        return [text for name, text in self.texts if name == tag]


def render(text):
    """Return the page of a renderer that lets HTML through, as the laxest ones do."""
    return Page(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))


def people(n=800, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 70, n)
    return pd.DataFrame(
        {
            "score": 1.0 / (1.0 + np.exp(-(age - 45.0) / 30.0 - rng.normal(size=n))),
            "age": age + rng.random(n),
            "income": rng.lognormal(10.0, 1.0, n),
        }
    )


@pytest.fixture(scope="module")
def found():
    rows = people()
    return audit(
        rows[["score"]],
        sensitive_features=rows[["age", "income"]],
        limits={"gap": 0.2, "gdp": 0.001, "gap_worst": 0.05},
        thresholds=[0.5],
        about={"model": "risk@2.1", "owner": "Credit risk", "limits_fixed": "2026-11-01"},
        random_state=0,
    ).released  # what Markdown is made of


def test_the_section_holds_title_limits_tiles_and_what_it_does_not_show(found):
    text = found.to_markdown()
    page = render(text)
    assert page.of("h2") == ["risk, version 2.1: dependence of “score” on age and income"]
    assert page.of("h3") == ["Limits", "age", "income", "Jointly: age and income", "How to read this"]
    limits = [one for one in page.of("li") if one.startswith(("Passed", "Failed", "Not shown"))]
    assert limits == [
        f"{one.state.capitalize()}: {limit_sentence(one, found.confidence_level)}" for one in found.limits
    ]
    assert {one.state for one in found.limits} == {"passed", "failed", "not shown"}
    assert "Fixed: 2026-11-01, as the caller said." in page.of("p")
    assert "Owner: Credit risk" in page.of("li")
    assert "Rows: 800" in page.of("li")
    assert any(one.startswith("What this does not show: why the dependence exists") for one in page.of("p"))
    record = found.to_dict()
    made = page.of("p")[-1]
    assert made.startswith(
        f"Made with frhsic {found.version}, python {record['record']['versions']['python']},"
    )
    assert made.endswith(f"seed 0; SHA-256 of the JSON record: {record['digest']}")
    assert text.endswith("\n")
    assert "fair" not in text.lower()


def test_the_tables_are_the_tiles_with_their_intervals(found):
    page = render(found.to_markdown())
    tiles = [one for attribute in found.attributes for one in make_tiles(found, attribute)]
    rows = [[one.title, f"{one.value} {one.unit}", one.interval, one.sentence] for one in tiles]
    assert len(rows) == 6
    assert page.of("td") == [text for row in rows for text in row]
    assert page.of("th") == ["Number", "Value", "Interval", "Meaning"] * 2
    assert (page.tags.count("table"), page.tags.count("tr")) == (2, 2 + 6)
    gap = found.attribute("age").measures["gap"]
    assert page.of("td")[1] == f"{100 * gap.estimate:.1f} percentage points"
    assert page.of("td")[2] == f"95% interval {100 * gap.low:.1f} to {100 * gap.high:.1f}"


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_what_users_typed_stays_text(found, name):
    one = found.attribute("age")
    hostile = replace(
        found,
        score=replace(found.score, name=name),
        columns=(replace(found.columns[0], name=name), found.columns[1]),
        attributes=(replace(one, names=(name,)), found.attributes[1]),
        joint=replace(found.joint, names=(name, "income")),
        claims=tuple(
            replace(claim, attributes=tuple(name if n == "age" else n for n in claim.attributes))
            for claim in found.claims
        ),
        limits=tuple(
            replace(limit, attribute=name, title=limit.title.replace("age", name)) for limit in found.limits
        ),
        about=replace(found.about, model=name, owner=name, purpose=name, limits_fixed=name),
        outcome=name,
        notes=(f"A note on {name}.",),
    )
    plain, page = render(found.to_markdown()), render(hostile.to_markdown())
    assert set(page.tags) <= KINDS
    assert page.attributes == []
    extra = {"li": 3, "ul": 1, "h3": 1}  # purpose, outcome and note
    for tag in KINDS:
        assert page.tags.count(tag) == plain.tags.count(tag) + extra.get(tag, 0), tag
    sentences = [
        text
        for one in hostile.released.attributes
        for tile in make_tiles(hostile.released, one)
        for text in (tile.title, f"{tile.value} {tile.unit}", tile.interval, tile.sentence)
    ]
    short = shown(name) if len(name) > 60 else name
    assert list(map(flat, page.of("td"))) == [flat(text.replace(name, short)) for text in sentences]
    assert flat(page.of("h3")[2]) == flat(short)
    assert f"Owner: {flat(short)}" in map(flat, page.of("li"))
    assert flat(short)[:30] in flat(page.of("h2")[0])


def flat(text):
    """Return a text on one line, without what surrounds names."""
    plain = text.translate({0x2068: None, 0x2069: None, 0x2028: " ", 0x2029: " ", ord("\r"): "\ufffd"})
    return " ".join(plain.split())


def test_a_long_name_is_cut_and_a_name_from_right_to_left_is_isolated(found):
    one = found.attribute("age")
    for name, written in (("x" * 300, "x" * 59 + "…"), ("שלום", "שלום")):
        named = replace(
            found,
            columns=(replace(found.columns[0], name=name), found.columns[1]),
            attributes=(replace(one, names=(name,)), found.attributes[1]),
        )
        text = named.to_markdown()
        assert f"\n### \u2068{written}\u2069\n" in text
        assert text.count("\u2068") == text.count("\u2069")
        assert "x" * 61 not in text
    for sign in "\u202e\u2066\x1b\x00":
        assert sign not in replace(found, notes=(f"a{sign}b",)).to_markdown()


def test_no_row_is_in_it(found):
    rows, text = people(), found.to_markdown()
    for column in ("score", "age", "income"):
        for value in rows[column]:
            assert f"{value:.6g}" not in text
    extremes = [f"{rows['income'].min():.4g}", f"{rows['income'].max():.5g}"]
    assert not [one for one in extremes if one in text]


def test_a_label_of_few_rows_is_not_named():
    rows = people()
    job = np.where(np.arange(800) < 5, "Pope", np.where(rows["age"] > 45, "chef", "nurse"))
    score = rows["score"] + 5.0 * (job == "Pope")
    text = audit(score, sensitive_features={"job": job}, random_state=0).to_markdown()
    assert "Pope" not in text
    assert "for chef" in text or "for nurse" in text


def test_a_representation_and_an_audit_without_limits_have_sections_too():
    rows = people()
    found = audit(
        rows[["score", "income"]], sensitive_features=rows[["age"]], trained_on=None, random_state=0
    )
    page = render(found.to_markdown())
    assert page.of("h2") == ["Dependence of the representation on age"]
    assert "Limits" not in page.of("h3")
    assert page.of("td")[0] == "Normalised HSIC"
    assert page.of("td")[4] == "R² of age"


@pytest.mark.filterwarnings("ignore:These rows were used to train")
def test_rows_that_were_trained_on_are_said_to_be():
    rows = people()
    found = audit(rows["score"], sensitive_features=rows["age"], trained_on=True, random_state=0)
    assert found.to_markdown().index("used to train the model") < found.to_markdown().index("| Number |")


def test_the_command_writes_it_whatever_the_gate_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    people().to_csv("scores.csv", index=False)
    line = (
        "audit scores.csv --score score --sensitive age --fail-above gdp=0.001 --markdown a.md --json a.json"
    )
    assert run(line.split()) == 1
    assert "Wrote a.md." in capsys.readouterr().out
    page = render((tmp_path / "a.md").read_text("utf-8"))
    assert any(one.startswith("Failed: GDP on age") for one in page.of("li"))
    assert page.of("code") == [json.loads((tmp_path / "a.json").read_text())["digest"]]
    assert run([*line.split()[:-1], "a.md"]) == 2
    assert "--markdown must not be the file of --json" in capsys.readouterr().err
