"""The report and the plots: they show the audit's numbers, run nothing, load nothing and judge nothing."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from frhsic import report
from frhsic._text import digits
from frhsic.auditing import (
    Attribute,
    Audit,
    Claim,
    Column,
    ErrorRates,
    Estimate,
    LabelDependence,
    Outcome,
    Recovery,
    Representation,
    Transfer,
    audit,
)
from frhsic.inference import (
    Curve,
    DecisionGaps,
    Interval,
    Profile,
    TestResult,
    adjusted_curve,
    auc_curve,
    carriers,
    proxies,
)
from frhsic.inference.bounds import Certificate, certify
from frhsic.report import (
    plot_adjusted,
    plot_auc,
    plot_bounds,
    plot_carriers,
    plot_curve,
    plot_decision_gaps,
    plot_error_rates,
    plot_frontier,
    plot_history,
    plot_null,
    plot_profile,
    plot_proxies,
    plot_transfer,
    render_report,
    write_report,
)
from frhsic.selection import Point

DATE = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SCRIPT = "<script>alert(1)</script>"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(autouse=True)
def close_figures() -> Any:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    rows = np.random.default_rng(0).normal(size=(120, 2))
    return certify(rows[:, 0], rows[:, 1], random_state=0, n_permutations=19)


# ---- an audit made by hand: every number is known -------------------------------------------------------


def an_interval(name: str, estimate: float, measure: str = "GDP") -> Interval:
    return Interval(
        estimate=estimate,
        low=estimate / 2,
        high=estimate * 2,
        confidence_level=0.95,
        measure=measure,
        target="the true curve",
        method="multipliers",
        attributes=(name,),
        n=1_234,
        chance=estimate / 3,
        chance_high=estimate / 1.7,
    )


def a_test(name: str, pvalue: float = 0.001) -> TestResult:
    null = tuple(np.random.default_rng(1).gamma(2.0, size=999))
    return TestResult(9.5, pvalue, "permutation", "HSIC", (name,), 1_234, True, 999, null=null)


def a_curve(name: str, points: tuple[float, ...]) -> Curve:
    mean = tuple(0.31 + 0.05 * math.sin(i) for i in range(len(points)))
    low, high = tuple(m - 0.02 for m in mean), tuple(m + 0.02 for m in mean)
    mass = (1 / len(points),) * len(points)
    return Curve(points, mean, low, high, mass, 0.33, 0.95, "the true curve", (name,), 1_234)


def a_profile(name: str, points: tuple[float, ...]) -> Profile:
    contrast = tuple(0.1 + 0.06 * math.sin(i) for i in range(len(points)))
    mass = (1 / len(points),) * len(points)
    return Profile(points, contrast, (0.11,) * len(points), mass, 0.95, (name,), 1_234)


def an_attribute(name: str, points: tuple[float, ...], kind: Any, score: bool, outcome: bool) -> Attribute:
    beside = Outcome(
        equalized_odds=a_test(name, 0.037),
        labels=(
            LabelDependence("0", 900, an_interval(name, 0.0417), a_curve(name, points)),
            LabelDependence("1", 334, None, None),
        ),
        equal_opportunity="1",
        calibration=a_curve(name, points),
        calibration_gap=an_interval(name, 0.00731),
    )
    return Attribute(
        names=(name,),
        kind=kind,
        test=replace(a_test(name), adjusted=0.002),
        measures={
            **({"gdp": an_interval(name, 0.0613)} if score else {}),
            "normalized_hsic": an_interval(name, 0.0873, "normalised HSIC"),
            "hsic": an_interval(name, 0.00239, "HSIC"),
            "distance_correlation": an_interval(name, 0.297, "distance correlation"),
            "kernel_hgr": Estimate(0.463, "kernel HGR", 0.171, 0.252, 1_000),
        },
        curve=a_curve(name, points) if score else None,
        profile=a_profile(name, points),
        outcome=beside if outcome and score else None,
    )


def make_audit(
    certificate: Certificate | None,
    *,
    names: tuple[str, str] = ("age", "sex"),
    labels: tuple[str, ...] = ("female", "male"),
    score: bool = True,
    outcome: bool = True,
) -> Audit:
    ages = tuple(np.linspace(20.0, 80.0, 30))
    codes = tuple(float(code) for code in range(len(labels)))
    number = Column(names[0], "continuous", 61, 20.5, 47.25, 79.5)
    group = Column(names[1], "categorical", len(labels), labels=labels, counts=(617,) * len(labels))
    found = (
        an_attribute(names[0], ages, "continuous", score, outcome),
        an_attribute(names[1], codes, "categorical", score, outcome),
    )
    measures = {key: one for key, one in found[0].measures.items() if key != "distance_correlation"}
    joint = replace(
        found[0], names=names, kind="joint", curve=None, profile=None, measures=measures, outcome=None
    )
    representation = Representation(
        recovered=tuple(
            Recovery(name, 0.213, 0.347, 0.31, 1_234, "boosted trees", 0.3, 0.39, 0.95) for name in names
        ),
        transfer=tuple(
            Transfer(
                head,
                0.81 + 0.01 * i,
                "accuracy",
                tuple(an_interval(name, 0.02 + 0.013 * i) for name in names),
            )
            for i, head in enumerate(("linear", "MLP", "forest", "boosted"))
        ),
    )
    return Audit(
        subject="score" if score else "representation",
        n=1_234,
        groups=None,
        confidence_level=0.95,
        score=Column("score", "continuous", 1_200, 0.02, 0.33, 0.91, unit_interval=True) if score else None,
        width=1 if score else 8,
        columns=(number, group),
        attributes=found,
        joint=joint,
        representation=None if score else representation,
        certificate=certificate,
        weighted=False,
        trained_on=None,
        seed=7,
        version="0.1",
        claims=(Claim("dependence", "depends", found[0].names),),
        notes=("A note.",),
    )


def without_figures() -> Audit:
    made = make_audit(None, outcome=False)
    bare = tuple(
        replace(found, curve=None, profile=None, test=replace(found.test, null=()))
        for found in made.attributes
    )
    return replace(made, attributes=bare)


@pytest.fixture(scope="module")
def page(certificate: Certificate) -> str:
    return render_report(
        make_audit(certificate), date=DATE, source="people.csv", command="frhsic audit a.csv"
    )


@pytest.fixture(scope="module")
def hostile(certificate: Certificate) -> str:
    names = (SCRIPT, "‮\x00$x_{$ שלום \ud800")
    labels = ("x" * 10_000, "</title><img src=x onerror=alert(1)>", "{{ 7*7 }}", "漢字 😀", "a\nb")
    return render_report(
        make_audit(certificate, names=names, labels=labels),
        title=SCRIPT,
        source='"><script>alert(2)</script>',
        command="y" * 100_000,
        date=DATE,
    )


class _Reader(HTMLParser):
    """Elements with their attributes, text, and whether every tag is closed in its turn."""

    VOID = frozenset({"meta", "br", "img", "link", "hr", "input"})

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.stack: list[str] = []
        self.wrong: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if len(dict(attrs)) != len(attrs):
            self.wrong.append(f"an attribute twice in {tag}")
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.stack or self.stack.pop() != tag:
            self.wrong.append(f"</{tag}> out of turn")

    def handle_data(self, data: str) -> None:
        if "style" not in self.stack:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


# ---- the page --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["page", "hostile"])
def test_every_tag_is_closed_and_no_identifier_stands_twice(
    which: str, request: pytest.FixtureRequest
) -> None:
    read = _Reader(request.getfixturevalue(which))
    assert not read.wrong
    assert not read.stack
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) > 20
    named = {name for _, a in read.elements for name in (a.get("aria-labelledby") or "").split()}
    used = {a["href"][1:] for tag, a in read.elements if tag == "use" and a.get("href")}
    assert named | used <= set(ids)
    assert named
    assert used


@pytest.mark.parametrize("which", ["page", "hostile"])
def test_the_page_is_valid_html5(which: str, request: pytest.FixtureRequest) -> None:
    html5lib = pytest.importorskip("html5lib", reason="html5lib checks the page against the standard")
    parser = html5lib.HTMLParser(strict=False)
    parser.parse(request.getfixturevalue(which))
    assert [code for _, code, _ in parser.errors] == []


def test_the_numbers_in_the_page_are_those_of_the_audit(certificate: Certificate, page: str) -> None:
    made, text = make_audit(certificate).released, _Reader(page).text
    for found in (*made.attributes, made.joint):
        assert found is not None
        intervals = [one for one in found.measures.values() if isinstance(one, Interval)]
        if found.outcome is not None:
            intervals += [found.outcome.labels[0].gdp, found.outcome.calibration_gap]
        for interval in filter(None, intervals):
            row = f"{digits(interval.low)} to {digits(interval.high)} {digits(interval.chance)} on average, "
            assert f"{digits(interval.estimate)} " in text
            assert f"{row}95% below {digits(interval.chance_high)}" in text
    for value in (
        "0.463",
        "0.171 on average, 95% below 0.252",
        "6.2 percentage points",
        "p = 0.037",
        "1,234 rows",
        "47.2",
    ):
        assert value in text
    for bound in certificate.bounds:
        assert digits(bound.value) in text
        assert bound.certifies in text


def test_a_smallest_p_value_says_that_permutations_can_give_no_smaller(page: str) -> None:
    text = _Reader(page).text
    assert "p = 0.001 the smallest that 999 permutations can give; p = 0.002 corrected for all tests" in text
    assert "p = 0.037 999 permutations" in text


def test_the_page_opens_with_the_sentences_of_the_audit(certificate: Certificate, page: str) -> None:
    text = _Reader(page).text
    places = [text.index(" ".join(line.split())) for line in make_audit(certificate).released.sentences()]
    assert places == sorted(places)
    assert places[-1] < text.index("Test of independence")


def test_the_page_says_how_it_was_made(page: str) -> None:
    text = _Reader(page).text
    assert "frhsic audit a.csv" in text
    assert "2026-01-31 12:00 UTC" in text
    assert re.search(r"Seed 7 ", text)
    for name in ("frhsic 0.1", "torch ", "numpy ", "scipy ", "python "):
        assert name in text[text.index("Versions") :]


def test_no_verdict_stands_in_the_page(page: str) -> None:
    assert not re.search(
        r"\b(un)?fair(ness)?\b|\b(un)?biased\b|discriminat", _Reader(page).text, re.IGNORECASE
    )


@pytest.mark.parametrize("which", ["page", "hostile"])
def test_the_page_loads_nothing(which: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(which)
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    read = _Reader(page)
    for tag, attributes in read.elements:
        assert tag not in ("script", "link", "iframe", "object", "embed", "img", "image", "base", "form")
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "srcset", "action", "background")
            if name == "href":
                assert value is not None
                assert value.startswith("#")
            if name == "style" and "url(" in (value or ""):
                assert "url(#" in (value or "")
    policies = [a["content"] for tag, a in read.elements if tag == "meta" and "http-equiv" in a]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


@pytest.mark.parametrize("which", ["page", "hostile"])
def test_every_figure_has_a_title_and_a_description(which: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(which)
    figures = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    assert len(figures) == 9  # curve and profile twice, two labels less one and calibration twice, bounds
    for figure in figures:
        head = re.match(r'<svg [^>]*role="img"[^>]*><title id="[^"]+">[^<]{8,}</title>', figure)
        assert head, figure[:200]
        assert re.search(r'<desc id="[^"]+">[^<]*\d[^<]*</desc>', figure)


def test_what_users_typed_stays_text(hostile: str) -> None:
    text = _Reader(hostile).text
    assert SCRIPT in text
    assert "<script" not in hostile
    assert "onerror=alert(1)>" not in hostile
    assert "{{ 7*7 }}" in text
    assert "漢字 😀" in text


def test_long_and_right_to_left_names_do_no_harm(hostile: str) -> None:
    assert "x" * 61 not in hostile
    assert "y" * 2_001 not in hostile
    for character in "‮\x00\ud800":
        assert character not in hostile
    assert re.search(r"<bdi[^>]*>[^<]*שלום[^<]*</bdi>", hostile)
    # In a sentence too, a name from right to left is kept to itself.
    outside = re.sub(r"<bdi[^>]*>.*?</bdi>|<svg .*?</svg>|<[^>]*>", "", hostile, flags=re.DOTALL)
    assert "שלום" not in re.sub(r"<title>.*?</title>", "", outside)


def test_the_same_audit_gives_the_same_page(certificate: Certificate, page: str) -> None:
    again = render_report(
        make_audit(certificate), date=DATE, source="people.csv", command="frhsic audit a.csv"
    )
    assert again == page


def test_matplotlib_keeps_its_settings_and_figures() -> None:
    before = dict(matplotlib.rcParams)
    render_report(make_audit(None, outcome=False), date=DATE)
    assert dict(matplotlib.rcParams) == before
    assert not sys.modules["matplotlib.pyplot"].get_fignums()


def test_title_source_command_and_date_change_the_page() -> None:
    made = without_figures()
    plain = render_report(made, date=DATE)
    for change in ({"title": "Q"}, {"source": "q"}, {"command": "q"}, {"date": DATE.replace(year=2027)}):
        assert render_report(made, **{"date": DATE, **change}) != plain  # type: ignore[arg-type]


def test_a_representation_has_its_own_part(certificate: Certificate) -> None:
    made = make_audit(certificate, score=False).released
    text = _Reader(render_report(made, date=DATE)).text
    assert "What can be predicted from the representation" in text
    assert "0.213" in text
    assert "0.347" in text
    assert "Mean gap (GDP) 0" not in text
    assert made.representation is not None
    for head in made.representation.transfer:
        for gdp in head.gdp:
            assert f"{digits(gdp.estimate)} ({digits(gdp.low)} to {digits(gdp.high)}" in text


def test_without_a_certificate_nothing_is_said_to_be_proved() -> None:
    assert "What these rows prove" not in render_report(without_figures(), date=DATE)


def test_vacuous_bounds_are_folded(certificate: Certificate, page: str) -> None:
    vacuous = [bound for bound in certificate.bounds if bound.vacuous]
    assert vacuous
    start = page.index("Bounds that say nothing here")
    assert all(page.index(f"({bound.kind}; says nothing here)", start) > start for bound in vacuous)
    assert "says nothing here)" not in page[:start]


def test_labels_beyond_sixteen_are_not_drawn_and_the_caption_says_so() -> None:
    labels = tuple(f"label {i}" for i in range(40))
    text = _Reader(render_report(make_audit(None, labels=labels, outcome=False), date=DATE)).text
    assert "Drawn are the 16 most frequent of 40 labels." in text
    assert "and 24 more" in text


def test_the_extremes_of_a_column_are_not_drawn(page: str) -> None:
    figure = re.search(r'<svg [^>]*"a0-curve-title.*?</svg>', page, re.DOTALL)
    assert figure
    curve = a_curve("age", tuple(np.linspace(20.0, 80.0, 30)))  # the quantiles are 20.5 and 79.5
    assert f"of {len(curve.points) - 2} points" in figure[0]
    assert "Drawn from the 1 % to the 99 % quantile." in _Reader(page).text


def test_a_label_of_few_rows_is_not_drawn() -> None:
    made = make_audit(None, labels=("female", "male", "(fewer than 10 rows)"), outcome=False)
    number, group = made.columns
    few = replace(made, columns=(number, replace(group, counts=(617, 617, 0))))
    page = render_report(few, date=DATE)
    assert "(fewer than 10 rows) (33%)" not in page
    assert "(fewer than 10 rows) (33%)" in render_report(made, date=DATE)
    assert "Drawn are the 2 most frequent of 3 labels." in _Reader(page).text
    none = replace(made, columns=(number, replace(group, counts=(0, 0, 0))))
    assert render_report(none, date=DATE).count("<svg ") == 2  # those of the other column


def test_an_audit_of_a_table_becomes_a_page() -> None:
    rng = np.random.default_rng(0)
    age = rng.integers(20, 60, 80)
    score = 1 / (1 + np.exp(-(age - 40) / 20 - rng.normal(size=80)))
    made = audit(score, sensitive_features={"age": age}, random_state=0).released
    text = _Reader(render_report(made, date=DATE)).text
    assert digits(made.attributes[0].measures["gdp"].estimate) in text
    assert " ".join(made.sentences()[0].split()) in text


# ---- the file --------------------------------------------------------------------------------------------


def test_a_file_is_replaced_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = without_figures()
    write_report(made, tmp_path / "a.html", date=DATE)
    assert (tmp_path / "a.html").read_text("utf-8") == render_report(made, date=DATE)
    (tmp_path / "a.html").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_report(made, str(tmp_path / "a.html"))
    assert (tmp_path / "a.html").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.html"]


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write_report(without_figures(), tmp_path / "a.html")
    assert (tmp_path / "a.html").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_folder_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=r"'path' must be a file. Got the folder .* Add a name"):
        write_report(make_audit(None), tmp_path)
    with pytest.raises(FileNotFoundError):
        write_report(without_figures(), tmp_path / "none" / "a.html")


# ---- a real browser --------------------------------------------------------------------------------------


def test_a_browser_runs_nothing_and_loads_nothing(tmp_path: Path, hostile: str) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    (tmp_path / "a.html").write_text(hostile, encoding="utf-8")
    requests: list[str] = []
    said: list[str] = []
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for width, scheme in ((1280, "light"), (390, "dark")):
            context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
            tab = context.new_page()
            tab.on("request", lambda request: requests.append(request.url))
            tab.on("console", lambda message: said.append(message.text))
            tab.on("pageerror", lambda error: said.append(str(error)))
            tab.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
            tab.goto((tmp_path / "a.html").as_uri())
            assert tab.locator("svg[role=img]").count() == 9
            assert tab.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
            text = tab.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
            light = sum(map(int, re.findall(r"\d+", text)[:3])) > 380
            assert light == (scheme == "dark")  # figures follow the page
            context.close()
        browser.close()
    assert said == []
    assert requests == [(tmp_path / "a.html").as_uri()] * 2


# ---- the plots -------------------------------------------------------------------------------------------


def drawn(certificate: Certificate) -> dict[str, Any]:
    ages = tuple(np.linspace(20.0, 80.0, 30))
    representation = make_audit(None, score=False).representation
    points = [Point(10.0, 0.80, 0.01, upper=0.02), Point(0.0, 0.85, 0.06), Point(1.0, 0.84, 0.05, upper=0.07)]
    gaps = DecisionGaps(
        *((0.2, 0.5), (0.7, 0.4), (0.1, 0.2), (0.05, 0.1), (0.2, 0.3), (0.1, 0.2), (0.04, 0.05)),
        0.95,
        "",
        ("age",),
        90,
    )
    history = [
        {"epoch": i, "loss": 1 / (i + 1), "penalty": 0.1, "validation_loss": 0.5, "validation_penalty": None}
        for i in range(4)
    ]
    g = np.random.default_rng(0)
    age, x = g.normal(size=(2, 200))
    adjusted = adjusted_curve(x, {"age": age}, given={"x": x + g.normal(size=200)}, random_state=0)
    carried = carriers({"a": age, "b": x}, {"age": age}, random_state=0, n_draws=99)
    auc = auc_curve(x > 0, x + age, {"age": age})
    found = proxies({"a": age + x, "b": x}, {"age": age}, random_state=0)
    return {
        "plot_auc": lambda ax: plot_auc(auc, ax=ax),
        "plot_error_rates": lambda ax: plot_error_rates(ErrorRates(0.5, a_curve("age", ages), None), ax=ax),
        "plot_adjusted": lambda ax: plot_adjusted(adjusted, ax=ax),
        "plot_carriers": lambda ax: plot_carriers(carried, ax=ax),
        "plot_proxies": lambda ax: plot_proxies(found, ax=ax),
        "plot_bounds": lambda ax: plot_bounds(certificate, ax=ax),
        "plot_curve": lambda ax: plot_curve(a_curve("age", ages), ax=ax),
        "plot_decision_gaps": lambda ax: plot_decision_gaps(gaps, thresholds=[0.5], ax=ax),
        "plot_frontier": lambda ax: plot_frontier(points, ax=ax),
        "plot_history": lambda ax: plot_history(history, ax=ax),
        "plot_null": lambda ax: plot_null(a_test("age"), ax=ax),
        "plot_profile": lambda ax: plot_profile(a_profile("age", ages), ax=ax),
        "plot_transfer": lambda ax: plot_transfer(representation, ax=ax),
    }


PLOTS = [name for name in report.__all__ if name.startswith("plot_")]


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_draws_on_the_axes_it_is_given_and_makes_one_otherwise(
    name: str, certificate: Certificate
) -> None:
    plot = drawn(certificate)[name]
    ax = Figure().subplots()
    assert plot(ax) is ax
    fresh = plot(None)
    assert isinstance(fresh, Axes)
    assert fresh is not ax
    for axes in (ax, fresh):
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_legend() is not None
        axes.figure.canvas.draw()


def line(ax: Axes, label: str) -> Any:
    return next(line for line in ax.get_lines() if line.get_label() == label)


def test_a_curve_is_drawn_from_left_to_right_with_its_overall_mean() -> None:
    curve = a_curve("age", (50.0, 20.0, 80.0))
    ax = plot_curve(curve)
    assert list(line(ax, "mean score").get_xdata()) == [20.0, 50.0, 80.0]
    assert list(line(ax, "mean score").get_ydata()) == [curve.mean[1], curve.mean[0], curve.mean[2]]
    assert line(ax, "overall mean").get_ydata()[0] == curve.overall
    assert plot_curve(curve, ylabel="mean error").get_ylabel() == "mean error"


def test_the_strip_of_rows_is_highest_where_most_rows_are() -> None:
    points = tuple(float(i) for i in range(10))
    mass = (0.02,) * 9 + (0.82,)
    ax = plot_curve(replace(a_curve("age", points), mass=mass))
    strip = next(patch for patch in ax.patches if patch.get_label() == "where the rows are")
    values, edges, _ = strip.get_data()
    assert edges[np.argmax(values)] == pytest.approx(8.5)
    assert values[:-1] == pytest.approx(values[-1] * 0.02 / 0.82)


def test_categories_are_drawn_as_points_with_their_labels() -> None:
    ax = plot_curve(a_curve("sex", (0.0, 1.0)), labels=("female", "$male"))
    texts = [text.get_text() for text in ax.get_yticklabels()]
    assert texts == ["female (50%)", r"\$male (50%)"]
    ax.figure.canvas.draw()
    ax = plot_profile(a_profile("sex", (0.0, 1.0, 2.0)), labels=("a", "b", "c"))
    assert len(ax.get_yticklabels()) == 3


def test_a_profile_marks_exactly_the_points_above_chance() -> None:
    profile = a_profile("age", tuple(float(i) for i in range(20)))
    ax = plot_profile(profile)
    above = [one for one in ax.get_lines() if one.get_linewidth() == 3]
    assert sorted(x for part in above for x in part.get_xdata()) == sorted(profile.above)
    assert 1 < len(above) < 20
    below = plot_profile(replace(profile, chance=(1.0,) * 20))
    assert not [one for one in below.get_lines() if one.get_linewidth() == 3]


SWEEP = [
    Point(0.0, 0.85, 0.06, lower=0.05, upper=0.07),
    Point(2.0, 0.84, 0.04, lower=0.03, upper=0.06, budget=0.5),
    Point(5.0, 0.83, 0.05, budget=0.2),
    Point(10.0, 0.80, 0.01, upper=0.02, budget=0.1),
]


def test_a_frontier_has_steps_along_its_front_up_to_the_greatest_dependence() -> None:
    steps = line(plot_frontier(SWEEP), "best with at most this")
    assert list(steps.get_xdata()) == [0.01, 0.04, 0.06, 0.06]
    assert list(steps.get_ydata()) == [0.80, 0.84, 0.85, 0.85]
    assert steps.get_drawstyle() == "steps-post"
    beaten = [*SWEEP, Point(1.0, 0.7, 0.1)]
    assert list(line(plot_frontier(beaten), "best with at most this").get_xdata())[-1] == 0.1


def test_a_frontier_marks_the_unconstrained_model_and_the_chosen_one() -> None:
    ax = plot_frontier(SWEEP, chosen=3)
    assert list(line(ax, "models").get_xdata()) == [0.04, 0.01]
    assert list(line(ax, "models, beaten by another").get_xdata()) == [0.05]
    assert list(line(ax, "unconstrained").get_xdata()) == [0.06]
    assert (line(ax, "chosen").get_xdata()[0], line(ax, "chosen").get_ydata()[0]) == (0.01, 0.80)
    labels = [text.get_text() for text in plot_frontier(SWEEP[1:]).get_legend().get_texts()]
    assert "unconstrained" not in labels
    assert "chosen" not in labels
    for chosen in (4, -1):
        with pytest.raises(ValueError, match=rf"'chosen' must be an index below 4 or None. Got {chosen}."):
            plot_frontier(SWEEP, chosen=chosen)


def test_bars_of_a_frontier_are_the_limits_of_the_points() -> None:
    """From the point itself where there is no lower limit; none without limits."""
    ((bars,),) = (ax.containers for ax in [plot_frontier(SWEEP)])
    ends = [[float(x) for x in segment[:, 0]] for segment in bars.lines[2][0].get_segments()]
    assert ends == [pytest.approx([0.05, 0.07]), pytest.approx([0.03, 0.06]), pytest.approx([0.01, 0.02])]
    assert not plot_frontier([Point(1.0, 0.8, 0.1)]).containers


def test_models_of_a_frontier_are_labelled_by_budget_or_by_penalty_weight() -> None:
    assert [text.get_text() for text in plot_frontier(SWEEP).texts] == ["50 %", "20 %", "10 %"]
    lams = [Point(0.5, 0.8, 0.1), Point(100.0, 0.7, 0.0)]
    assert [text.get_text() for text in plot_frontier(lams).texts] == ["0.5", "100"]


def test_labels_of_a_crowded_frontier_hide_no_other() -> None:
    """A label that would is left out; those that stay do not overlap, as drawn."""
    rng = np.random.default_rng(0)
    points = [Point(float(i + 1), 0.8 + 0.002 * rng.normal(), 0.05 + 0.002 * rng.normal()) for i in range(60)]
    ax = plot_frontier(points)
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent().padded(-2.0) for text in ax.texts]
    assert 10 < len(boxes) < 60
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_label_of_a_frontier_is_nearest_to_its_own_model() -> None:
    points = [Point(float(i + 1), 0.8 + 0.0004 * i, 0.05 + 0.001 * (i % 3)) for i in range(12)]
    ax = plot_frontier(points)
    ax.figure.canvas.draw()
    places = ax.transData.transform([(point.dependence, point.performance) for point in points])
    assert ax.texts
    for text in ax.texts:
        box = text.get_window_extent()
        middle = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
        nearest = np.linalg.norm(places - middle, axis=1).argmin()
        assert text.get_text() == f"{points[nearest].penalty_weight:g}"


def test_axes_of_a_frontier_say_what_they_hold() -> None:
    ax = plot_frontier(SWEEP, dependence="GDP in $ on age", performance="accuracy")
    assert ax.get_xlabel() == r"GDP in \$ on age (less is to the left)"
    assert ax.get_ylabel() == "accuracy"
    ax.figure.canvas.draw()


def test_a_null_distribution_holds_every_draw_and_the_observed_value() -> None:
    test = a_test("age")
    ax = plot_null(test)
    assert sum(patch.get_height() for patch in ax.patches) == len(test.null)
    assert line(ax, "observed").get_xdata()[0] == test.statistic
    with pytest.raises(ValueError, match=r"'test' must hold draws .* Got none \(method 'gamma'\)"):
        plot_null(replace(test, null=(), method="gamma"))


def test_bounds_hold_a_point_for_each_resolution(certificate: Certificate) -> None:
    ax = plot_bounds(certificate)
    assert list(line(ax, "worst head").get_ydata()) == [head.worst_rms for head in certificate.heads]
    assert list(line(ax, "the paper's bound").get_ydata()) == [head.paper_bound for head in certificate.heads]
    assert ax.get_yscale() == "log"


def test_a_history_has_a_scale_for_the_penalty_of_its_own(certificate: Certificate) -> None:
    ax = drawn(certificate)["plot_history"](None)
    assert list(line(ax, "loss").get_ydata()) == [1.0, 1 / 2, 1 / 3, 1 / 4]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "loss",
        "loss, held-out rows",
        "penalty",
    ]
    assert len(ax.figure.axes) == 2
    assert len(plot_history([{"epoch": 0, "loss": 1.0, "penalty": None}]).figure.axes) == 1


def test_transfer_draws_the_attribute_that_is_asked_for() -> None:
    made = make_audit(None, score=False).representation
    assert made is not None
    assert plot_transfer(made).get_xlabel() == "GDP on age"
    assert plot_transfer(made, attribute="sex").get_xlabel() == "GDP on sex"
    with pytest.raises(ValueError, match=r"'attribute' must be .* Got 'race'. Take one of 'age', 'sex'."):
        plot_transfer(made, attribute="race")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plot_frontier([]), "'points' must hold"),
        (lambda: plot_history([]), "'history' must hold"),
        (lambda: plot_transfer(Representation((), ())), "'representation' must hold"),
    ],
)
def test_nothing_to_draw_is_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_without_its_packages_the_report_says_what_to_install(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import frhsic.report"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    told = f"ImportError: 'frhsic.report' needs {package}. Install it: pip install 'frhsic[report]'."
    assert done.stderr.splitlines()[-1] == told
