"""Cards in notebooks, the page of a search, and whether a screen reader can use the pages."""

from __future__ import annotations

import importlib
import importlib.resources
import json
import re
import shlex
import shutil
import sys

import html5lib
import numpy as np
import pytest

from frhsic import FRHSICClassifier, audit
from frhsic.cli import run
from frhsic.datasets import make_u_shaped
from frhsic.report import render_frontier, render_report
from frhsic.selection import FrontierSearch, lowest_dependence
from frhsic.sources import write_table

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def found():
    g = np.random.default_rng(0)
    age, zone = g.integers(18, 81, 600), np.array(["north", "a<b>&"])[g.integers(0, 2, 600)]
    score = 1 / (1 + np.exp(-((age - 50) / 20 + g.normal(size=600))))
    return audit(
        score,
        sensitive_features={"age": age, f"zone {SCRIPT}": zone},
        y_true=(score > g.uniform(size=600)).astype(int),
        thresholds=[0.5],
        limits={"gap": 0.5, "gdp": 0.0},
        about={"model": SCRIPT},
        random_state=0,
    )


@pytest.fixture(scope="module")
def search():
    task = make_u_shaped(500, random_state=0)
    search = FrontierSearch(FRHSICClassifier(epochs=3, random_state=0), budgets=[0.5, 0.1], random_state=0)
    return search.fit(task.data, task.target, sensitive_features={f"s {SCRIPT}": task.sensitive_features})


def read(html):
    return html5lib.parse(html, namespaceHTMLElements=False)


# Notebooks


def test_the_card_of_an_audit_has_its_limits_numbers_and_picture(found):
    html = found._repr_html_()
    tree = read(html)
    assert not list(tree.iter("script"))
    names = ["".join(one.itertext()) for one in tree.iter("p") if one.get("class") == "name"]
    assert names[:4] == ["Score gap", "Largest difference", "Decisions at 0.5", "Calibration gap"]
    shown = found.to_dict()["attributes"][0]["measures"]["gap"][
        "estimate"
    ]  # rounded to what its interval bears
    assert f"{100 * shown:.1f}" in html
    assert [one.text for one in tree.iter("b")] == [one.state for one in found.limits]
    assert html.count("<svg") >= 1
    assert "\n\n" not in html


def test_each_result_has_a_card_and_the_text_is_short(found):
    one = found.attribute("age")
    for result in (one.test, one.measures["gap"], one.curve, one.profile, one.cutoffs, one.outcome.auc):
        html = result._repr_html_()
        assert 'class="frhsic"' in html
        assert ("<svg" in html) == (result is not one.measures["gap"])
        assert len(repr(result)) < 300
    assert "p = 0.001" in one.test._repr_html_()
    # Two cards on a page must not share the names of clipping paths.
    ids = [set(re.findall(r' id="([^"]+)"', x._repr_html_())) for x in (one.curve, one.cutoffs)]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_plot_draws_by_the_function_made_for_it(found):
    import matplotlib.pyplot as plt

    ax = plt.figure().subplots()
    assert found.plot(ax=ax) is ax
    assert ax.get_xlabel() == "age"
    assert found.attribute("age").cutoffs.plot(thresholds=[0.5]).get_xlabel() == "cut-off"
    with pytest.raises(TypeError, match="Interval has nothing to draw"):
        found.attribute("age").measures["gap"].plot()
    with pytest.raises(TypeError, match="nothing to draw"):
        found.limits[0].plot()
    plt.close("all")


def test_without_the_report_a_notebook_shows_text(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "frhsic.report", None)
    assert found._repr_html_() is None
    with pytest.raises(ImportError):
        found.plot()


def test_a_search_shows_a_diagram_and_then_its_models(search):
    fresh = FrontierSearch(FRHSICClassifier())
    assert 'class="frhsic"' not in fresh._repr_mimebundle_()["text/html"]
    bundle = search._repr_mimebundle_()
    assert 'class="frhsic"' in bundle["text/html"]
    assert bundle["text/plain"] == repr(search)
    assert "<script" not in bundle["text/html"]
    assert search.plot().get_ylabel() == "accuracy"


# The page of a search


def test_the_page_of_a_search_shows_every_model_and_what_was_not_tried(search, tmp_path):
    search.report(tmp_path / "f.html", target="income", title=None, source="people.csv", command="frhsic x")
    html = (tmp_path / "f.html").read_text()
    tree = read(html)
    assert not list(tree.iter("script"))
    rows = [["".join(c.itertext()) for c in row] for body in tree.iter("tbody") for row in body.iter("tr")]
    assert [row[0].replace(" (chosen)", "") for row in rows] == [point.label for point in search.points_]
    assert [i for i, row in enumerate(rows) if "(chosen)" in row[0]] == [search.best_index_]
    table = search.results_
    for index, row in enumerate(rows):
        assert row[2] == f"{table['performance'][index]:.3f}"
        assert row[3].startswith(f"{table['gap'][index]:.2g}"[:4])
        assert row[-1] == ("yes" if table["on_front"][index] else "no")
    text = " ".join("".join(tree.itertext()).split())
    for part in (
        "income",
        "people.csv",
        "LightGBM, XGBoost and linear models",
        "Scores repaired",
        "best with at most this",
    ):
        assert part in text
    assert "lowest_dependence_within" in text


def test_no_choice_is_said(search):
    html = render_frontier(search, found=False, rule="equivalent")
    assert "No model was chosen: none meets the rule." in html
    assert "(chosen)" not in html
    assert "Accuracy of the chosen model" not in html
    assert "equivalent" in html


def test_the_command_writes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    task = make_u_shaped(400, random_state=0)
    x = np.asarray(task.data)
    table = {
        "a": x[:, 0],
        "b": x[:, 1],
        "y": np.asarray(task.target),
        "s": np.asarray(task.sensitive_features),
    }
    write_table({name: np.ravel(value) for name, value in table.items()}, "t.csv")
    line = "frontier t.csv --target y --sensitive s --epochs 2 --budgets 0.5 -o m.frhsic --report f.html"
    assert run(shlex.split(f"{line} --json f.json")) == 0
    assert "Wrote f.html." in capsys.readouterr().out
    html = (tmp_path / "f.html").read_text()
    reason = json.loads((tmp_path / "f.json").read_text())["reason"]
    assert reason.split(",")[0] in html
    assert "frhsic frontier t.csv" in html
    assert run(shlex.split(f"{line[:-6]}m.frhsic")) == 2
    assert "must not be the file of" in capsys.readouterr().err


# A screen reader


@pytest.mark.parametrize("page", ["audit", "search"])
def test_axe_finds_no_violation(page, found, search, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="it holds axe-core")
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    html = render_report(found) if page == "audit" else render_frontier(search.choose(lowest_dependence))
    (tmp_path / "a.html").write_text(html, "utf-8")
    broken = html.replace('<html lang="en">', "<html>").replace("</main>", '</main><img src="x.png">')
    (tmp_path / "b.html").write_text(broken, "utf-8")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
            view = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
            tab = browser.new_context(**view).new_page()
            tab.goto((tmp_path / "a.html").as_uri())
            answer = axe.Axe().run(tab).response
            assert [(one["id"], one["nodes"][0]["html"]) for one in answer["violations"]] == []
            assert len(answer["passes"]) > 30
        tab.goto((tmp_path / "b.html").as_uri())
        seen = {one["id"] for one in axe.Axe().run(tab).response["violations"]}
        assert {"html-has-lang", "image-alt"} <= seen
        browser.close()


def test_the_words_of_the_pages_are_in_one_file():
    text = importlib.import_module("frhsic.report._words").TEXT
    assert text["language"] == "en"
    templates = importlib.resources.files("frhsic.report") / "templates"
    for name in ("report.html", "frontier.html", "card.html"):
        source = (templates / name).read_text("utf-8")
        bare = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", " ", source, flags=re.DOTALL)
        words = set(re.findall(r"[A-Za-z]{3,}", bare)) - {"frhsic", "representation"}
        assert words == set(), (name, words)
