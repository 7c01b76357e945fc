"""What a sketch promises: any order, any parts, any machine; and what it refuses."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load, save

from frhsic._tensorfile import _NO_DIGEST, _seal
from frhsic.data import Sensitive, to_sensitive
from frhsic.dependence import EIPM, GDP, HSIC
from frhsic.inference import confidence_interval, independence_test
from frhsic.kernels import Delta, Energy, Gaussian, Linear, OnColumns, default_kernel
from frhsic.sketching import FeatureHSIC, HSICSketch
from frhsic.sketching import _rows as stored_rows

D = torch.float64
N = 3_000
MIXED = OnColumns(Gaussian(9.0), (0,)) * OnColumns(Delta(), (1,))


def data(n=N, seed=0):
    g = torch.Generator().manual_seed(seed)
    s = torch.randn(n, dtype=D, generator=g)
    z = torch.randn(n, 3, dtype=D, generator=g)
    z[:, 0] += s
    return {
        "z": z,
        "s": s,
        "age": (45 + 15 * s).round().clamp(17, 90),
        "score": torch.sigmoid(z[:, 0]),
        "sex": np.where(z[:, 1].numpy() > 0.3, "f", "m"),
        "zone": np.array(["a", "b", "c", "d"])[(z[:, 2] > 0).long() * 2 + (z[:, 1] > 0).long()],
        "w": torch.rand(n, dtype=D, generator=g) + 0.2,
    }


DATA = data()
# Each: the kernels, and z and s among the columns.
CASES = {
    "continuous": (Gaussian(2.5), Gaussian(1.0), "z", ("s",)),
    "ages": (Gaussian(2.5), Gaussian(9.0), "z", ("age",)),
    "scores": (Gaussian(0.2), Gaussian(1.0), "score", ("s",)),
    "scores and ages": (Gaussian(0.2), Gaussian(9.0), "score", ("age",)),
    "ages by sex": (Gaussian(0.2), MIXED, "score", ("age", "sex")),
    "ages by zone": (Gaussian(2.5), 2.0 * MIXED, "z", ("age", "zone")),  # too many to keep apart
    "continuous by sex": (Gaussian(2.5), MIXED, "z", ("s", "sex")),
    "categories": (Gaussian(2.5), default_kernel(["categorical"] * 2), "z", ("sex", "zone")),
    "two numbers": (Linear() + Gaussian(2.0), default_kernel(["continuous"] * 2, 5.0), "z", ("s", "age")),
}


# Each once, every other one with weights.
WEIGHTED = [(name, k % 2 == 1) for k, name in enumerate(CASES)]


def rows(name, part=slice(None)):
    _, _, z, columns = CASES[name]
    return DATA[z][part], {c: np.asarray(DATA[c])[part] for c in columns}


def empty(name, **more):
    kernel_z, kernel_s, _, _ = CASES[name]
    return HSICSketch(kernel_z, kernel_s, n_features=(64, 32), n_groups=6, **more)


def numbers(sketch):
    """Everything that comes out of a sketch."""
    found = [
        sketch.value(estimator=estimator, normalized=normalized)
        for estimator, normalized in itertools.product(("biased", "unbiased"), (False, True))
    ]
    found += [sketch.without(g).value() for g in range(3)]
    errors = [sketch.error(), sketch.error(normalized=True)]
    return [*found, *(x for e in errors for x in (e.exact, e.features, e.standard_error))]


@pytest.fixture(autouse=True)
def _few_stored_rows(monkeypatch):
    monkeypatch.setattr(stored_rows, "STORED", 500)  # so that choosing them is part of every test


@pytest.mark.parametrize(("name", "weighted"), [*WEIGHTED, ("ages by sex", True), ("continuous", True)])
def test_parts_and_their_order_do_not_matter(name, weighted):
    ids = np.arange(N) * 7919
    order = np.random.default_rng(0).permutation(N)

    def sketch(part, start=None):
        z, s = rows(name, part)
        return (start or empty(name)).update(z, s, DATA["w"][part] if weighted else None, ids=ids[part])

    whole = numbers(sketch(slice(None)))
    parts = [sketch(part) for part in np.array_split(order, 5)]
    forth = ((parts[0] + parts[1]) + parts[2]) + (parts[3] + parts[4])
    back = parts[4] + ((parts[3] + parts[2]) + (parts[1] + parts[0]))
    one = empty(name)
    for part in np.array_split(order, 9):
        sketch(part, one)
    for other in (forth, back, one):
        assert other.n_rows == N
        np.testing.assert_allclose(numbers(other), whole, rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["continuous", "ages by sex"])
def test_the_same_parts_in_the_same_order_give_the_same_bytes(name):
    def total():
        parts = []
        for part in np.array_split(np.arange(N), 4):
            z, s = rows(name, part)
            parts.append(empty(name).update(z, s))
        return (parts[0] + parts[1] + parts[2] + parts[3]).to_bytes()

    assert total() == total()


@pytest.mark.parametrize("name", CASES)
def test_adding_leaves_both_sketches_alone(name):
    a, b = (empty(name).update(*rows(name, part)) for part in (slice(0, 900), slice(900, 2_000)))
    before = a.to_bytes(), b.to_bytes()
    total = a + b
    total.update(*rows(name, slice(2_000, N)))
    a.without(0)
    assert (a.to_bytes(), b.to_bytes()) == before
    assert (a + empty(name)).value() == (empty(name) + a).value() == a.value()


def test_values_become_features_when_they_are_too_many_wherever_that_shows():
    few, many = DATA["age"], DATA["s"]
    kernels = Gaussian(2.5), Gaussian(5.0)
    expected = FeatureHSIC(*kernels)(torch.cat((DATA["z"],) * 2), torch.cat((few, many))).item()
    exact = HSICSketch(*kernels, dtype="float64").update(DATA["z"], few)
    assert not exact._states[None].featured
    by_rows = HSICSketch(*kernels, dtype="float64").update(DATA["z"], few).update(DATA["z"], many)
    other = HSICSketch(*kernels, dtype="float64").update(DATA["z"], many)
    for sketch in (by_rows, exact + other, other + exact):
        assert sketch._states[None].featured
        assert sketch.value(estimator="biased") == pytest.approx(expected, rel=1e-12)
    # Two halves of too many values, each of few enough.
    halves = [many.sort().values[k * 100 : (k + 1) * 100] for k in range(2)]
    sketches_ = [HSICSketch(*kernels).update(DATA["z"][:100], half) for half in halves]
    assert [sketch._states[None].featured for sketch in sketches_] == [False, False]
    assert (sketches_[0] + sketches_[1])._states[None].featured


@pytest.mark.parametrize("name", CASES)
def test_float32_blocks_keep_six_digits(name):
    z, s = rows(name)
    single, double = (empty(name, dtype=dtype).update(z, s).value() for dtype in ("float32", "float64"))
    assert single == pytest.approx(double, rel=1e-6)
    if name != "categories":
        assert single != double or "number" in name


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_rows_far_from_zero_keep_their_digits(offset):
    for name in ("continuous", "scores"):
        z, s = rows(name)
        near = empty(name).update(z, s).value()
        far = empty(name).update(z + offset, {key: x + offset for key, x in s.items()}).value()
        assert far == pytest.approx(near, rel=1e-6)


def test_float32_arrays_integers_and_frames_are_the_same_rows():
    z, age, sex = DATA["z"].float().numpy(), DATA["age"].numpy().astype(np.int64), DATA["sex"]
    w = DATA["w"].numpy()
    columns = {"age": age, "sex": sex}
    frames = [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns), to_sensitive(columns)]
    values = {empty("ages by sex").update(z[:, 0], s, w).value() for s in (columns, *frames)}
    turned = pd.DataFrame(columns)[["sex", "age"]]  # by name, once the order is known
    sketch = empty("ages by sex").update(z[:10, 0], pd.DataFrame(columns)[:10], w[:10])
    sketch.update(pd.Series(z[10:, 0]), turned[10:], pl.Series(w[10:]))
    assert len(values) == 1
    assert sketch.value() == pytest.approx(values.pop(), rel=1e-6)


def test_categories_are_known_by_their_labels_not_their_codes():
    z = DATA["score"]
    labels = np.where(z.numpy() > 0.5, "b", "a")
    whole = HSICSketch(Gaussian(0.2), Delta()).update(z, {"x": labels})
    parts = HSICSketch(Gaussian(0.2), Delta())
    for label in ("b", "a"):  # each alone has the code 0
        rows_ = labels == label
        parts.update(z[torch.from_numpy(rows_)], {"x": labels[rows_]})
    assert parts.value() == pytest.approx(whole.value(), rel=1e-6)
    late = HSICSketch(Gaussian(0.2), Delta()).update(z[:9], {"x": labels[:9]})
    early = HSICSketch(Gaussian(0.2), Delta()).update(z[9:], {"x": labels[9:]})
    assert (late + early).stored.s.categories == (("a", "b"),)
    stored = (late + early).stored
    codes = torch.from_numpy((labels == "b").astype(float))
    assert {(a, b) for a, b in zip(stored.z[:, 0].tolist(), stored.s.values[:, 0].tolist(), strict=True)} <= {
        (a, b) for a, b in zip(z.tolist(), codes.tolist(), strict=True)
    }


@pytest.mark.parametrize("weighted", [False, True])
def test_labels_of_given_are_sketches_of_their_rows(weighted):
    z, s, y = DATA["z"], DATA["s"], DATA["zone"]
    w = DATA["w"] if weighted else None
    sketch = empty("continuous")
    for part in np.array_split(np.arange(N), 3):
        sketch.update(z[part], s[part], None if w is None else w[part], given=y[part], ids=part)
    assert sketch.labels == ("a", "b", "c", "d")
    for label in sketch.labels:
        r = torch.from_numpy(y == label)
        own = empty("continuous").update(
            z[r], s[r], None if w is None else w[r], ids=np.arange(N)[y == label]
        )
        np.testing.assert_allclose(numbers(sketch.at(label)), numbers(own), rtol=2e-6, atol=1e-9)
    whole = empty("continuous").update(z, s, w, ids=np.arange(N))
    np.testing.assert_allclose(numbers(sketch), numbers(whole), rtol=2e-6, atol=1e-9)
    again = HSICSketch.from_bytes(sketch.to_bytes())
    assert again.at("b").value() == sketch.at("b").value()
    twice = sketch + sketch
    assert twice.n_rows == 2 * N
    assert twice.at("c").value(estimator="biased") == pytest.approx(sketch.at("c").value(estimator="biased"))


def test_rows_of_no_weight_are_not_there():
    z, s = DATA["score"], DATA["s"]
    w = DATA["w"].clone()
    w[::3] = 0.0
    kept = w > 0
    ids = np.arange(N)
    all_rows = empty("scores").update(z * torch.where(kept, 1.0, 9.0), s + 99.0 * ~kept, w, ids=ids)
    some = empty("scores").update(z[kept], s[kept], w[kept], ids=ids[kept.numpy()])
    assert all_rows.n_rows == 2_000
    np.testing.assert_allclose(numbers(all_rows), numbers(some), rtol=1e-9)


@pytest.mark.parametrize("name", ["continuous", "scores and ages", "ages by zone", "two numbers"])
def test_equal_weights_are_none_and_their_size_does_not_matter(name):
    z, s = rows(name)
    plain = numbers(empty(name).update(z, s))
    for size in (3.7, 1e-30, 1e30):
        weighted = empty(name).update(z, s, np.full(N, size))
        np.testing.assert_allclose(numbers(weighted), plain, rtol=1e-5, atol=1e-9)
    late = (
        empty(name)
        .update(*rows(name, slice(0, 1_000)))
        .update(*rows(name, slice(1_000, N)), np.ones(N - 1_000))
    )
    np.testing.assert_allclose(numbers(late), plain, rtol=1e-5, atol=1e-9)


def test_a_part_whose_weights_are_all_zero_adds_nothing():
    z, s, w = DATA["score"], DATA["s"], DATA["w"]
    sketch = empty("scores").update(z[:99], s[:99], 0.0 * w[:99])
    assert sketch.n_rows == 0
    sketch.update(z[99:], s[99:], w[99:]).update(z[:99], s[:99], 0.0 * w[:99])
    assert sketch.n_rows == N - 99
    assert sketch.effective_rows == pytest.approx((w[99:].sum() ** 2 / w[99:].square().sum()).item())


@pytest.mark.parametrize(("name", "n_groups"), [("ages", 2), ("ages", 20), ("continuous", 20)])
def test_rounding_of_equal_rows_does_not_add_up(name, n_groups):
    # Nine rows of ten are the same: in one long sum of float32 their roundings would all go one way.
    g = torch.Generator().manual_seed(0)
    tied = torch.rand(70_000, generator=g) < 0.9
    z, s = torch.randn(70_000, 3, dtype=D, generator=g), torch.randn(70_000, dtype=D, generator=g)
    s = (45 + 15 * s).round() if name == "ages" else s
    z[tied], s[tied] = torch.tensor([0.1, 0.2, 0.3], dtype=D), 30.0 if name == "ages" else 0.3
    kernels = CASES[name][:2]
    single, double = (
        HSICSketch(*kernels, n_groups=n_groups, dtype=dtype).update(z, s).feature_sums().moments().first
        for dtype in ("float32", "float64")
    )
    assert (single - double).abs().max() < 1e-6 * 70_000


def test_effective_rows_are_those_of_the_weights():
    w = DATA["w"]
    sketch = empty("continuous").update(DATA["z"], DATA["s"], w)
    assert sketch.effective_rows == pytest.approx((w.sum() ** 2 / w.square().sum()).item(), rel=1e-6)


def test_stored_rows_are_those_of_the_smallest_numbers():
    ids = np.random.default_rng(3).integers(-(2**63), 2**63, N)
    sketch = empty("continuous").update(DATA["z"], DATA["s"], DATA["w"], ids=ids)
    chosen = np.sort(stored_rows.row_numbers(ids).argsort()[:500])
    stored = sketch.stored
    assert sorted(stored.weights.tolist()) == sorted(DATA["w"][chosen].tolist())
    place = {w: i for i, w in enumerate(DATA["w"].tolist())}
    order = [place[w] for w in stored.weights.tolist()]
    assert torch.equal(stored.z, DATA["z"][order])
    assert torch.equal(stored.s.values[:, 0], DATA["s"][order])


def test_equal_ids_go_together():
    ids = np.arange(N) % 700
    sketch = empty("continuous").update(DATA["z"], DATA["s"], ids=ids)
    counts = np.bincount(ids[[DATA["s"].tolist().index(x) for x in sketch.stored.s.values[:, 0].tolist()]])
    assert set(counts[counts > 0]) <= {4, 5}  # all rows of an id, or none
    assert 490 <= len(sketch.stored.z) <= 500
    with pytest.raises(ValueError, match=r"^'ids' must tell rows apart.* Got 0 stored of 3000"):
        empty("continuous").update(DATA["z"], DATA["s"], ids=np.zeros(N, dtype=int)).error()


@pytest.mark.parametrize("name", CASES)
def test_features_of_stored_rows_are_those_of_the_value(name):
    z, s = rows(name, slice(0, 500))
    sketch = empty(name, dtype="float64").update(z, s)
    assert len(sketch.stored.z) == 500
    for normalized in (False, True):
        error = sketch.error(normalized=normalized)
        assert error.features == pytest.approx(sketch.value(normalized=normalized), rel=1e-8)
        assert error.standard_error == 0


def test_its_error_is_that_of_the_rows_it_has_now():
    z, s = rows("scores")
    half = empty("scores").update(z[:200], s["s"][:200])
    first = half.error().exact
    fresh = empty("scores").update(z[:400], s["s"][:400]).error().exact
    assert fresh != first
    assert half.update(z[200:400], s["s"][200:400]).error().exact == fresh
    half.reset()
    assert half.update(z[:200], s["s"][:200]).error().exact == first
    half.merge_state(empty("scores").update(z[200:400], s["s"][200:400], ids=np.arange(200, 400)))
    assert half.error().exact == pytest.approx(fresh, rel=1e-12)


@pytest.mark.parametrize(("name", "weighted"), WEIGHTED)
def test_bytes_are_the_sketch(name, weighted):
    z, s = rows(name)
    sketch = empty(name).update(z, s, DATA["w"] if weighted else None)
    raw = sketch.to_bytes()
    again = HSICSketch.from_bytes(raw)
    assert again.to_bytes() == raw
    assert numbers(again) == numbers(sketch)
    assert repr(again) == repr(sketch)
    assert again.update(z, s).value() == sketch.update(z, s).value()
    assert HSICSketch.from_bytes(bytearray(empty(name).to_bytes()), like=sketch).n_rows == 0
    assert len(raw) < 4e6


def test_a_sketch_that_an_earlier_version_wrote_is_refused_by_its_version():
    raw = (Path(__file__).parent / "saved" / "sketch-2.safetensors").read_bytes()
    with pytest.raises(ValueError, match=r"^'data' must have version 4\. Got 2\. An older frhsic wrote it"):
        HSICSketch.from_bytes(raw)


def test_a_sketch_of_many_columns_is_written_and_read():
    x = np.random.default_rng(0).normal(size=(50, 40))
    names = [f"ä{j}" for j in range(40)]
    numbers_ = dict(zip(names, x.T, strict=True))
    labels = {
        name: np.where(column > 0, "f", "f" if j > 5 else "m")
        for j, (name, column) in enumerate(numbers_.items())
    }
    for kind, s in (("continuous", numbers_), ("categorical", labels)):
        kernel_s = default_kernel([kind] * 40, 20.0) if kind == "continuous" else default_kernel([kind] * 40)
        sketch = HSICSketch(Gaussian(1.0), kernel_s, n_features=(8, 9), n_groups=2).update(x[:, 0], s)
        assert HSICSketch.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()


def test_a_sketch_made_on_another_process_is_the_same():
    code = (
        "import sys, torch\n"
        "from frhsic.sketching import HSICSketch\n"
        "g = torch.Generator().manual_seed(5)\n"
        "z = torch.randn(400, 3, generator=g, dtype=torch.float64)\n"
        "sketch = HSICSketch.from_bytes(sys.stdin.buffer.read())\n"
        "sys.stdout.buffer.write(sketch.update(z, z[:, 0]).to_bytes())\n"
    )
    start = empty("continuous").to_bytes()
    done = subprocess.run([sys.executable, "-c", code], input=start, capture_output=True, check=True)
    z = torch.randn(400, 3, generator=torch.Generator().manual_seed(5), dtype=D)
    assert done.stdout == empty("continuous").update(z, z[:, 0]).to_bytes()


def test_memory_does_not_grow_with_the_rows():
    sketch = HSICSketch(Gaussian(0.2), Gaussian(1.0))
    g = torch.Generator().manual_seed(0)
    sizes = []
    for _ in range(12):
        s = torch.randn(20_000, dtype=D, generator=g)
        sketch.update(torch.sigmoid(s), s)
        sizes.append(len(sketch.to_bytes()))
    assert sizes[-1] < 1.3 * sizes[2]


def test_like_takes_the_scales_of_hsic_from_a_sample():
    columns = to_sensitive({"s": DATA["s"].numpy(), "sex": DATA["sex"]})
    measure = HSIC().calibrate(DATA["z"], columns)
    sketch = HSICSketch.like(DATA["z"], {"s": DATA["s"].numpy(), "sex": DATA["sex"]}, n_groups=3)
    assert repr(sketch.kernel_z) == repr(measure.kernel_z)
    assert repr(sketch.kernel_s) == repr(measure.kernel_s)
    assert (sketch.n_rows, sketch.n_groups, sketch.n_features) == (0, 3, (256, 64))
    free = HSICSketch.like(
        DATA["z"], DATA["s"], kernel_z=Gaussian("scale-free", whiten=True), dtype="float64"
    )
    free.update(DATA["z"], DATA["s"])
    frozen = FeatureHSIC(Gaussian("scale-free", whiten=True), estimator="unbiased")
    assert free.value() == pytest.approx(frozen(DATA["z"], DATA["s"]).item(), rel=1e-9)
    again = HSICSketch.from_bytes(free.to_bytes())
    assert (again + free).value(estimator="biased") == pytest.approx(free.value(estimator="biased"), rel=1e-9)
    heavy = HSICSketch.like(DATA["z"], DATA["s"], weights=DATA["w"] * (DATA["s"] > 0))
    assert heavy.kernel_s.bandwidth != free.kernel_s.bandwidth


ARGUMENTS = {
    "kernel_z": Gaussian(1.0),
    "kernel_s": Gaussian(0.5),
    "n_features": (32, 16),
    "random_state": 1,
    "n_groups": 7,
    "dtype": "float64",
}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_another_specification_is_refused_with_both_named_and_changes_something(argument):
    common = {"kernel_z": Gaussian(2.5), "kernel_s": Gaussian(1.0)}
    one = HSICSketch(**common).update(DATA["z"], DATA["s"])
    other = HSICSketch(**(common | {argument: ARGUMENTS[argument]})).update(DATA["z"], DATA["s"])
    assert (other.value(), len(other.group_shares)) != (one.value(), len(one.group_shares))
    named = rf"{{'{argument}': .*}}"
    said = rf"^'other' must be a sketch of the same specification\. Got {named} and {named}\. Make both"
    with pytest.raises(ValueError, match=said):
        one + other
    with pytest.raises(ValueError, match=said):
        HSICSketch.from_bytes(other.to_bytes(), like=one)


def test_other_columns_are_refused():
    sketch = empty("continuous").update(DATA["z"], {"s": DATA["s"].numpy()})
    with pytest.raises(ValueError, match=r"^'z' must have 3 columns as before\. Got 1\."):
        sketch.update(DATA["score"], {"s": DATA["s"].numpy()})
    with pytest.raises(
        ValueError, match=r"^'s' must have the columns 's' \(continuous\) as before\. Got 'age'"
    ):
        sketch.update(DATA["z"], {"age": DATA["age"].numpy()})
    with pytest.raises(ValueError, match=r"^'other' must be a sketch of the same.*'names': \['s'\].*\['t'\]"):
        sketch + empty("continuous").update(DATA["z"], {"t": DATA["s"].numpy()})
    assert sketch.n_rows == N
    assert sketch.__add__(3) is NotImplemented


REFUSED = {
    "kernel_z": [
        Gaussian(),
        Gaussian("scale-free"),
        Gaussian(1.0, whiten=True),
        None,
        "gaussian",
        Delta(),
        Energy(),
    ],
    "kernel_s": [Gaussian(), Linear(whiten=True), None],
    "n_features": [64, (64,), (1, 64), (64, 2), "ab", (10**9, 64), (2_048, 1_024)],
    "random_state": [None, -1, 0.5, True],
    "n_groups": [1, 2.5, 10**9],
    "dtype": ["float16", torch.float32],
}


@pytest.mark.parametrize("argument", REFUSED)
def test_arguments_that_make_no_sense_are_refused_with_name_and_cure(argument):
    for value in REFUSED[argument]:
        with pytest.raises((ValueError, TypeError), match=rf"^'{argument}' must .*Got .*\. \w+"):
            HSICSketch(**({"kernel_z": Gaussian(1.0), "kernel_s": Gaussian(1.0)} | {argument: value}))
    with pytest.raises(ValueError, match=r"Got Gaussian\(bandwidth='median'.*HSICSketch\.like\(z, s\) takes"):
        HSICSketch(Gaussian(), Gaussian(1.0))


def test_rows_that_make_no_sense_are_refused():
    z, s = DATA["z"], DATA["s"]
    sketch = empty("continuous").update(z, s)
    refusals = {
        r"^'s' must have 3000 rows like 'z'": lambda: sketch.update(z, s[1:]),
        r"^'weights' must not be negative": lambda: sketch.update(z, s, -DATA["w"]),
        r"^'given' must have 3000 rows": lambda: sketch.update(z, s, given=DATA["zone"][1:]),
        r"^'given' must come with all rows": lambda: sketch.update(z, s, given=DATA["zone"]),
        r"^'ids' must be 3000 integers": lambda: sketch.update(z, s, ids=s),
        r"^'label' must be one of \[\]": lambda: sketch.at("a"),
        r"^'group' must lie between 0 and 5": lambda: sketch.without(6),
        r"^'z' must have no missing": lambda: sketch.update(z * math.nan, s),
        r"^'estimator' must be": lambda: sketch.value(estimator="best"),
        r"^'update' must have brought rows": lambda: empty("continuous").value(),
        r"^'update' must have brought at least 4 rows": lambda: (
            empty("continuous").update(z[:3], s[:3]).value()
        ),
        r"^'other' must be by labels of 'given'": lambda: (
            sketch + empty("continuous").update(z, s, given=DATA["zone"])
        ),
        r"^'confidence_level' must lie between 0 and 1": lambda: sketch.error().interval(1.5),
        r"^'z' must have at most 4,096 columns": lambda: empty("continuous").update(
            np.ones((3, 5_000)), s[:3]
        ),
        r"^'kernel_s' must look at all columns of 's'\. Got OnColumns.*blind to 'age'": lambda: HSICSketch(
            Gaussian(1.0), OnColumns(Gaussian(1.0), (0,))
        ).update(z, {"s": s.numpy(), "age": DATA["age"].numpy()}),
        r"at least 4 rows for estimator='unbiased'.*Got 1\. Add": lambda: (
            empty("continuous").update(z[:9], s[:9], [1.0, *[1e-9] * 8]).value()
        ),
        r"^'kernel_s' must be Delta\(\) on categories": lambda: HSICSketch(
            Gaussian(1.0), Gaussian(1.0)
        ).update(z, {"sex": DATA["sex"]}),
        r"^'s' must have the columns that 'kernel_s' looks at": lambda: HSICSketch(
            Gaussian(1.0), MIXED
        ).update(z, s),
        r"^'kernel_s' must be Gaussian.*Got Energy": lambda: HSICSketch(Gaussian(1.0), Energy()).update(z, s),
        r"^'s' must have fewer categories for a sketch.*'city'": lambda: HSICSketch(
            Gaussian(1.0), Delta()
        ).update(np.ones((9_000, 3)), {"city": [f"c{i}" for i in range(9_000)]}),
    }
    before = sketch.to_bytes()
    for said, act in refusals.items():
        with pytest.raises(ValueError, match=said):
            act()
    assert sketch.to_bytes() == before


def parts(raw):
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    document = json.loads(header["__metadata__"]["frhsic"])
    del document["sha256"]
    return load(raw), document


def joined(tensors, document):
    """What a stranger may send, digest included."""
    return _seal(save(tensors, {"frhsic": json.dumps({**document, "sha256": _NO_DIGEST})}))


def test_bytes_that_are_no_sketch_are_refused():
    raw = empty("ages by sex").update(*rows("ages by sex")).to_bytes()
    for bad in (b"", b"x" * 100, raw[:-1], raw[:1000], raw + b"\0", save({"x": torch.ones(1)})):
        with pytest.raises(ValueError, match=r"^'data' must .*\. Got .*\. Make the sketch again"):
            HSICSketch.from_bytes(bad)
    with pytest.raises(TypeError, match=r"^'data' must be bytes\. Got str"):
        HSICSketch.from_bytes("sketch")
    tensors, document = parts(raw)
    assert HSICSketch.from_bytes(joined(tensors, document)).n_rows == N
    with pytest.raises(ValueError, match=r"^'data' must have version 4\. Got 2\."):
        HSICSketch.from_bytes(joined(tensors, document | {"version": 2}))
    with pytest.raises(ValueError, match=r"^'data' must hold 'frhsic-sketch'\. Got 'frhsic-model'"):
        HSICSketch.from_bytes(joined(tensors, document | {"format": "frhsic-model"}))
    moved = tensors | {"fingerprint": tensors["fingerprint"] + 1e-3}
    with pytest.raises(
        ValueError, match=r"^'data' must hold a sketch with the frequencies that this machine"
    ):
        HSICSketch.from_bytes(joined(moved, document))


def test_a_sketch_with_one_bit_changed_is_refused():
    raw = empty("ages by sex").update(*rows("ages by sex")).to_bytes()
    g = np.random.default_rng(0)
    for place in g.integers(len(raw), size=100):
        damaged = bytearray(raw)
        damaged[place] ^= 1 << int(g.integers(8))
        with pytest.raises(ValueError, match=r"^'data' must "):
            HSICSketch.from_bytes(bytes(damaged))


def spoilt():
    """Yield tensors and documents of which one thing is wrong."""
    raw = empty("ages by sex").update(*rows("ages by sex"), DATA["w"]).to_bytes()
    tensors, document = parts(raw)
    for name, x in tensors.items():
        if name != "fingerprint":
            yield f"{name} missing", {k: v for k, v in tensors.items() if k != name}, document
            yield f"{name} cut", tensors | {name: x[1:].clone()}, document
            yield f"{name} of another type", tensors | {name: x.to(torch.float32)}, document
        if x.is_floating_point() and x.numel():
            nan = x.clone()
            nan.view(-1)[0] = math.nan
            yield f"{name} with nan", tensors | {name: nan}, document
    yield "a tensor too many", tensors | {"0.more": torch.ones(2)}, document
    yield "negative counts", tensors | {"0.counts": -tensors["0.counts"]}, document
    yield "unsorted values", tensors | {"0.levels.0": tensors["0.levels.0"].flip(0)}, document
    yield "negative weights", tensors | {"0.w": -tensors["0.w"]}, document
    yield "numbers out of order", tensors | {"0.numbers": tensors["0.numbers"].flip(0)}, document
    yield "unknown codes", tensors | {"0.s": tensors["0.s"] + 5.0}, document
    yield "no mass", tensors | {"0.sums": 0.0 * tensors["0.sums"]}, document
    without = empty("ages by sex").update(*rows("ages by sex")).to_bytes()
    plain, other = parts(without)
    yield "rows that were not counted", plain | {"0.counts": plain["0.counts"] + 1}, other
    for end in (math.inf, -math.inf, math.nan, 1e300, 10**400):
        changed = json.loads(json.dumps(document))
        changed["states"][0]["grids"]["line"][1] = end
        yield f"a grid up to {end:.0e}" if end != 10**400 else "a grid up to no float", tensors, changed
    text = json.dumps(document)
    for old, new in (
        ('"Gaussian"', '"Gauss"'),
        ('"bandwidth": 9.0', '"bandwidth": "median"'),
        ('"bandwidth": 9.0', '"bandwidth": -9.0'),
        ('"OnColumns"', '"__import__"'),
        ('"n_features": [64, 32]', '"n_features": [62, 32]'),
        ('"n_groups": 6', '"n_groups": 7'),
        ('"n_groups": 6', '"n_groups": 1000000000'),
        ('"n_features": [64, 32]', '"n_features": [1000000000, 32]'),
        ('"n_features": [64, 32]', '"n_features": [4096, 4096]'),
        ('"random_state": 0', '"random_state": -1'),
        ('"z": 1', '"z": 2'),
        ('"z": 1', '"z": 1000000000'),
        ('["age", "sex"]', '["age"]'),
        ('["continuous", "categorical"]', '["continuous", "continuous"]'),
        ('"featured": false', '"featured": true'),
        ('"featured": false', '"featured": 0'),
        ('["f", "m"]', '["m", "f"]'),
        ('["f", "m"]', '["f", "m", "x"]'),
        ('["f", "m"]', '["f", ["m"]]'),
        ('"bound": ', '"bound": -'),
        ('"label": null', '"label": {}'),
        ('"seen": 3000', '"seen": "3000"'),
        ('"states": [', '"states": [], "old": ['),
    ):
        assert old in text, old
        yield f"{old} as {new}", tensors, json.loads(text.replace(old, new, 1))


SPOILT = {name: (tensors, document) for name, tensors, document in spoilt()}


@pytest.mark.parametrize("name", sorted(SPOILT))
def test_bytes_whose_parts_do_not_fit_are_refused(name):
    with pytest.raises(ValueError, match=r"^'data' must "):
        HSICSketch.from_bytes(joined(*SPOILT[name]))


def test_a_forged_file_does_not_get_more_memory_than_a_sketch_may_have():
    tensors, document = parts(empty("continuous").update(*rows("continuous")).to_bytes())
    document["spec"]["n_groups"], document["spec"]["n_features"] = 1_000, [4_096, 4_000]
    code = (
        "import resource, sys\n"
        "from frhsic.sketching import HSICSketch\n"
        "limit = int(open('/proc/self/statm').read().split()[0]) * 4096 + 2**29\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try:\n"
        "    HSICSketch.from_bytes(sys.stdin.buffer.read())\n"
        "except ValueError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=joined(tensors, document), capture_output=True, check=True
    )
    assert done.stdout.startswith(b"'data' must hold a whole sketch.")


def test_a_sketch_is_a_metric_of_a_validation_loop():
    z, s = DATA["z"].float().requires_grad_(), DATA["s"].float()
    metric, other = empty("continuous"), empty("continuous")
    for part in torch.arange(N).split(700):
        (metric if part[0] < 1_400 else other).update(z[part], s[part])
    before = other.to_bytes()
    metric.merge_state(other)
    assert other.to_bytes() == before
    assert (metric.n_rows, other.n_rows) == (N, N - 1_400)
    found = metric.compute()
    assert isinstance(found, torch.Tensor)
    assert found.shape == ()
    assert found.item() == metric.value(normalized=True) > 0.01
    metric.reset()
    assert metric.n_rows == 0
    assert metric.to_bytes() == empty("continuous").to_bytes()
    metric.update(DATA["score"], DATA["age"])  # other columns, after a reset
    assert metric.n_rows == N


@pytest.mark.parametrize(("name", "weighted"), [*WEIGHTED, ("continuous", True)])
def test_tests_and_intervals_take_a_sketch_of_anything(name, weighted):
    z, s = rows(name)
    sketch = empty(name).update(z, s, DATA["w"] if weighted else None)
    before = sketch.to_bytes()
    test = independence_test(sketch, n_permutations=99, random_state=0)
    assert test.statistic == sketch.value()
    assert test.pvalue == 0.01
    assert (test.n, test.attributes, test.exact) == (N, tuple(s), False)
    assert test.method == ("wild bootstrap" if weighted else "permutation")
    again = independence_test(HSICSketch.from_bytes(before), n_permutations=99, random_state=0)
    assert again.null == test.null
    assert independence_test(sketch, n_permutations=99, random_state=1).null != test.null
    interval = confidence_interval(sketch, random_state=0, n_draws=99)
    assert interval.low < interval.estimate < interval.high
    assert interval.chance_high < interval.low
    error = sketch.error(normalized=True)
    assert interval.estimate == pytest.approx(sketch.value(normalized=True) - error.error, rel=1e-9)
    assert "stored rows" in str(interval)
    root = confidence_interval(
        sketch, dependence=HSIC(normalized=True, root=True), random_state=0, n_draws=99
    )
    assert root.high == pytest.approx(interval.high**0.5, rel=1e-9)
    assert sketch.to_bytes() == before


def test_the_interval_and_the_test_of_all_stored_rows_are_those_of_the_rows(monkeypatch):
    monkeypatch.setattr(stored_rows, "STORED", 5_000)
    z, s = DATA["score"][:800], DATA["s"][:800]
    sketch = HSICSketch(Gaussian(0.2), Gaussian(1.0)).update(z, s)
    measure = HSIC(Gaussian(0.2), Gaussian(1.0), normalized=True)
    of_rows = confidence_interval(z, s, dependence=measure, random_state=0)
    of_sketch = confidence_interval(sketch, random_state=0)
    assert of_sketch.estimate == pytest.approx(of_rows.estimate, rel=1e-4)  # that of rows is of their table
    for end in ("low", "high"):  # Student's law of twenty groups instead of the normal one
        assert getattr(of_sketch, end) == pytest.approx(getattr(of_rows, end), rel=0.25)
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(800, dtype=D, generator=g)
    sketch = HSICSketch(Gaussian(1.0), Gaussian(1.0)).update(noise, s)
    fixed = HSIC(Gaussian(1.0), Gaussian(1.0))
    of_rows = independence_test(noise, s, dependence=fixed, random_state=0).pvalue
    for method in ("permutation", "gamma"):
        assert independence_test(sketch, method=method, random_state=0).pvalue == pytest.approx(
            of_rows, abs=0.06
        )


def test_a_constant_is_not_found_dependent_however_many_rows():
    z = torch.full((9_000, 3), 0.1, dtype=D)
    s = torch.randn(9_000, dtype=D, generator=torch.Generator().manual_seed(0))
    for sketch in (HSICSketch(Gaussian(1.0), Gaussian(1.0)).update(x, y) for x, y in ((z, s), (s, z[:, 0]))):
        assert abs(sketch.value()) < 1e-10
        for method in ("permutation", "gamma"):
            assert independence_test(sketch, method=method, random_state=0).pvalue == 1
        with pytest.raises(
            ValueError, match=r"^'scores' must be a sketch that varies\. Got .* One side is constant"
        ):
            confidence_interval(sketch)


def test_what_float32_does_not_resolve_is_not_found_dependent_and_told():
    s = torch.randn(9_000, dtype=D, generator=torch.Generator().manual_seed(0))
    z = 1e-4 * s  # ten thousand times smaller than the bandwidth
    for dtype, resolved in (("float32", False), ("float64", True)):
        sketch = HSICSketch(Gaussian(1.0), Gaussian(1.0), dtype=dtype).update(z, s)
        found = independence_test(sketch, random_state=0, n_permutations=19)
        assert found.pvalue == (0.05 if resolved else 1)
        assert ("float64 and a smaller bandwidth resolve more" in str(found)) is not resolved


def test_what_a_sketch_already_holds_is_refused_beside_it():
    z, s = DATA["z"], DATA["s"]
    sketch = empty("continuous").update(z, s)
    weighted = empty("continuous").update(z, s, DATA["w"])
    few = empty("continuous").update(z[:9], s[:9])
    beside = r"must be left out beside a sketch.*Pass the sketch alone"
    refusals = {
        rf"^'s' {beside}": lambda: independence_test(sketch, s),
        rf"^'dependence' {beside}": lambda: independence_test(sketch, dependence=HSIC()),
        r"^'given' must be labels of the sketch: \[\]": lambda: independence_test(sketch, given=["a"]),
        rf"^'sample_weight' {beside}": lambda: independence_test(sketch, sample_weight=DATA["w"]),
        rf"^'weights_of_s' {beside}": lambda: independence_test(sketch, weights_of_s=True),
        r"^'method' must be 'permutation' for a sketch of weighted": lambda: independence_test(
            weighted, method="gamma"
        ),
        r"^'s' must be left out": lambda: confidence_interval(sketch, s),
        r"^'sample_weight' must be left out": lambda: confidence_interval(sketch, sample_weight=DATA["w"]),
        r"^'dependence' must be an HSIC without kernels for a sketch.* Got EIPM": lambda: confidence_interval(
            sketch, dependence=EIPM()
        ),
        r"^'dependence' must be an HSIC without kernels for a sketch.* Got GDP": lambda: confidence_interval(
            sketch, dependence=GDP()
        ),
        r"^'dependence' must be an HSIC without kernels": lambda: confidence_interval(
            sketch, dependence=HSIC(Gaussian(1.0))
        ),
        r"^'scores' must be a sketch with rows in each of its 6 groups.* Got 9": lambda: confidence_interval(
            few
        ),
        r"^'confidence_level' must lie between": lambda: confidence_interval(sketch, confidence_level=2.0),
        r"^'n_permutations' must be at least 19": lambda: independence_test(sketch, n_permutations=3),
    }
    for said, act in refusals.items():
        with pytest.raises(ValueError, match=said):
            act()


def test_a_result_prints_as_a_sentence():
    sketch = empty("continuous").update(DATA["z"], DATA["s"])
    assert str(sketch.error()).startswith("On 500 stored rows the features give 0.0")
    assert "n_rows=3,000" in repr(sketch)


def test_a_plain_tensor_with_several_columns_is_taken_as_numbers():
    s = torch.stack((DATA["s"], DATA["age"]), dim=1)
    kernel = default_kernel(["continuous"] * 2, 5.0)
    sketch = HSICSketch(Gaussian(2.5), kernel).update(DATA["z"], s)
    columns = Sensitive(s, ("s0", "s1"), ("continuous",) * 2)
    assert sketch.value() == HSICSketch(Gaussian(2.5), kernel).update(DATA["z"], columns).value()
