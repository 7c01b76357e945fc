"""Gaps of a score from a sketch are those of the rows, within the error that it states."""

import re

import numpy as np
import pyarrow as pa
import pytest
import torch

from frhsic.auditing import audit, audit_source
from frhsic.dependence import ScoreGap
from frhsic.inference import conditional_curve, confidence_interval, decision_gaps
from frhsic.sketching import HSICSketch
from frhsic.sources import open_source

CUTOFFS = (*np.linspace(0.02, 0.98, 49), 0.205, 0.505)


def rows(kind="age", n=6_000, seed=0):
    rng = np.random.default_rng(seed)
    s = {
        "age": lambda: rng.integers(20, 40, n).astype(float),
        "income": lambda: rng.gamma(4.0, size=n),
        "sex": lambda: rng.choice(["f", "m", "x"], n),
    }[kind]()
    high = s == "f" if kind == "sex" else s > np.median(s)
    return rng.beta(2, 3, n) ** (1.0 + 0.5 * high), s, rng.uniform(0.5, 2.0, n)


def sketch_of(z, s, w=None, parts=1, cutoffs=CUTOFFS):
    ids = np.arange(len(z))
    made = [
        HSICSketch.like(z[:2_000], s[:2_000], cutoffs=cutoffs).update(
            z[k::parts], s[k::parts], None if w is None else w[k::parts], ids=ids[k::parts]
        )
        for k in range(parts)
    ]
    total = made[0]
    for one in made[1:]:
        total = one + total
    return total


def interval(*data, cutoff=None, **more):
    measure = ScoreGap(cutoff=cutoff)
    return confidence_interval(*data, dependence=measure, random_state=0, n_draws=499, **more)


@pytest.mark.parametrize("kind", ["age", "sex"])
@pytest.mark.parametrize("weighted", [False, True])
def test_decisions_at_values_of_s_are_those_of_all_rows(kind, weighted):
    z, s, w = rows(kind)
    weights = {"sample_weight": w} if weighted else {}
    found = decision_gaps(sketch_of(z, s, w if weighted else None), cutoffs=[0.505, 0.205], random_state=0)
    twin = decision_gaps(z, s, cutoffs=[0.505, 0.205], random_state=0, **weights)
    assert found.plug_in == pytest.approx(twin.plug_in, abs=1e-12)
    assert found.gaps == pytest.approx(twin.gaps, abs=1e-3)
    assert found.rates == pytest.approx(twin.rates, abs=1e-12)
    assert found.high == pytest.approx(twin.high, rel=0.1)
    assert found.n == len(z)


@pytest.mark.parametrize("kind", ["age", "income", "sex"])
def test_the_gap_is_that_of_the_rows_within_its_stated_error(kind):
    z, s, _ = rows(kind)
    found, twin = interval(sketch_of(z, s)), interval(z, s)
    error = float(re.search(r"within ([\d.]+) of the gap", found.notes[0])[1])
    along = 0.0 if kind != "income" else 0.02 * twin.estimate  # rows are shared by neighbouring knots
    assert abs(found.estimate - twin.estimate) <= error + along
    assert 0.0 < error < 0.02
    assert found.low <= twin.low + 0.1 * twin.estimate
    assert found.high >= twin.high - 0.1 * twin.estimate
    assert found.chance == pytest.approx(twin.chance, rel=0.1)


def test_parts_add_up_to_the_same_sketch_in_any_order():
    z, s, w = rows("age")
    whole, parts = sketch_of(z, s, w), sketch_of(z, s, w, parts=3)
    one, two = (sketch.score_table() for sketch in (whole, parts))
    assert torch.allclose(one.mass, two.mass, atol=1e-15)
    assert torch.allclose(one.squared_mass, two.squared_mass, atol=1e-15)
    again = HSICSketch.from_bytes(parts.to_bytes())
    assert torch.equal(again.score_table().mass, two.mass)
    assert again.cutoffs == parts.cutoffs


def test_new_categories_keep_their_counts():
    z, s, _ = rows("sex")
    late = s == "f"
    sketch = HSICSketch.like(z, s, cutoffs=CUTOFFS).update(z[~late], s[~late]).update(z[late], s[late])
    found = decision_gaps(sketch, cutoffs=[0.505], random_state=0)
    twin = decision_gaps(z, s, cutoffs=[0.505], random_state=0)
    assert found.plug_in == pytest.approx(twin.plug_in, abs=1e-12)


def test_the_worst_is_that_of_the_cutoffs_of_the_sketch():
    z, s, _ = rows("age")
    found = interval(sketch_of(z, s), cutoff="worst")
    at = ScoreGap().at(torch.tensor(z)[:, None], torch.tensor(s), torch.tensor(CUTOFFS))
    assert found.plug_in == pytest.approx(float(at.max()), abs=1e-12)


def test_the_rate_along_s_is_that_of_the_rows():
    z, s, _ = rows("age")
    found = conditional_curve(sketch_of(z, s), cutoff=0.505, random_state=0)
    twin = conditional_curve(z, s, cutoff=0.505, random_state=0)
    assert found.points == twin.points
    assert found.mean == pytest.approx(twin.mean, abs=1e-12)
    assert found.high == pytest.approx(twin.high, rel=0.1)
    decisions = conditional_curve((z > 0.505).astype(float), s, random_state=0)
    assert twin == decisions


def test_without_cutoffs_stored_rows_are_taken_and_bytes_are_as_before():
    z, s, _ = rows("age")
    sketch = sketch_of(z, s, cutoffs=())
    assert sketch.score_table() is None
    assert "cutoffs" not in sketch.spec
    assert "5,000 stored rows of 6,000 were used." in interval(sketch).notes
    assert "5,000 stored rows of 6,000 were used." in interval(sketch_of(z, s), cutoff=0.123).notes


def test_sketches_of_other_cutoffs_do_not_add_up_and_groups_have_no_gap():
    z, s, _ = rows("age")
    with pytest.raises(ValueError, match="same specification"):
        sketch_of(z, s) + sketch_of(z, s, cutoffs=())
    with pytest.raises(ValueError, match="finite numbers"):
        sketch_of(z, s, cutoffs=[float("nan")])
    with pytest.raises(ValueError, match="have scores on both sides"):
        interval(sketch_of(z, s, cutoffs=[0.5, 2.0]), cutoff=2.0)
    grouped = HSICSketch.like(z, s, cutoffs=CUTOFFS).update(z, s, groups=np.arange(len(z)) // 2)
    with pytest.raises(ValueError, match="without groups of rows"):
        interval(grouped)
    assert sketch_of(z, s).without(0).score_table() is None


def test_the_audit_of_a_source_has_the_decisions_of_all_its_rows():
    z, s, _ = rows("age", n=8_000)
    source = open_source(pa.table({"score": z, "age": s}))
    found = audit_source(source, scores="score", sensitive_features="age", thresholds=0.61, random_state=0)
    twin = audit(z, sensitive_features={"age": s}, thresholds=0.61, random_state=0)
    ours, theirs = (one.attribute("age") for one in (found, twin))
    assert ours.decisions[0].gap.estimate == pytest.approx(theirs.decisions[0].gap.estimate, abs=1e-12)
    assert ours.decisions[0].ratio == pytest.approx(theirs.decisions[0].ratio, abs=1e-12)
    assert ours.measures["gap"].estimate == pytest.approx(theirs.measures["gap"].estimate, rel=0.02)
    assert ours.measures["gap"].n == 8_000
    assert not any("so are gaps" in note for note in found.notes)
