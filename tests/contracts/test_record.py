"""The record of an audit: digests, what it must not hold, and computing it again."""

import copy
import hashlib
import json
import subprocess
import sys
from functools import cache

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from frhsic._checks import ArgumentError
from frhsic.auditing import audit, audit_source, read_record, schema, verify
from frhsic.auditing._record import ColumnHash, digest, hash_rows, hash_source
from frhsic.auditing._verify import find_problems
from frhsic.cli import run
from frhsic.sources import open_source


def people(n=1_200, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 70, n)
    score = 1.0 / (1.0 + np.exp(-(age - 45.0) / 30.0 - rng.normal(size=n)))
    return pd.DataFrame(
        {
            "score": score,
            "age": age,
            "income": np.exp(0.02 * age + rng.normal(size=n)),
            "sex": rng.choice(["f", "m"], n),
            "paid": (rng.random(n) < score).astype(int),
            "weight": 0.5 + rng.random(n),
            "person": np.arange(n) // 2,
        }
    )


# Digests of columns


def test_a_digest_is_that_of_the_values_and_not_of_the_file(tmp_path):
    frame = people(500)
    frame["id"] = 2**60 + np.arange(500)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    roles = [("scores", "score"), ("sensitive_features", "sex"), ("groups", "id")]
    files = {"a.parquet": 40, "b.parquet": 500}
    for name, rows in files.items():
        pq.write_table(table, tmp_path / name, row_group_size=rows)
    frame.to_csv(tmp_path / "c.csv", index=False)
    found = {
        name: hash_source(
            open_source(tmp_path / name, columns=[one for _, one in roles], batch_rows=rows), roles
        )
        for name, rows in {**files, "c.csv": 7}.items()
    }
    assert found["a.parquet"] == found["b.parquet"] == found["c.csv"]
    mine = hash_rows(
        {"scores": frame[["score"]], "sensitive_features": frame[["sex"]], "groups": frame[["id"]]}
    )
    assert mine == found["a.parquet"]
    coded = table.set_column(3, "sex", table["sex"].dictionary_encode())
    assert hash_rows({"sensitive_features": coded.select(["sex"])})[0].sha256 == mine[1].sha256


def test_a_digest_by_hand():
    hashed = ColumnHash()
    hashed.add_numbers(np.array([1, 2]))
    hashed.add_numbers(np.array([-0.0]))
    expected = hashlib.sha256(np.array([1.0, 2.0, 0.0], dtype="<f8").tobytes()).hexdigest()
    assert hashed.column("scores", None).sha256 == expected
    text = ColumnHash()
    text.add_text(["a", None])
    text.add_text(["bc"])
    lengths = hashlib.sha256(np.array([1, -1, 2], dtype="<i8").tobytes()).digest()
    both = hashlib.sha256(lengths + hashlib.sha256(b"abc").digest()).hexdigest()
    assert text.column("groups", None).sha256 == both
    assert hash_rows({"s": ["ab", "c"]}) != hash_rows({"s": ["a", "bc"]})
    large = [hash_rows({"groups": np.array([2**60, 2**60 + j])})[0].sha256 for j in (1, 2)]
    assert large[0] != large[1]  # the same float64


def test_one_changed_cell_of_a_million_is_found():
    rng = np.random.default_rng(0)
    x = rng.normal(size=1_000_000)
    first = hash_rows({"scores": x})[0].sha256
    for row in rng.integers(0, len(x), 20):
        changed = x.copy()
        changed[row] = np.nextafter(changed[row], np.inf)
        assert hash_rows({"scores": changed})[0].sha256 != first
    assert hash_rows({"scores": x[::-1]})[0].sha256 != first  # the order counts


# What leaves an audit


def numbers_in(plain):
    if isinstance(plain, dict):
        for value in plain.values():
            yield from numbers_in(value)
    elif isinstance(plain, list):
        for value in plain:
            yield from numbers_in(value)
    elif isinstance(plain, float | int) and not isinstance(plain, bool):
        yield plain


@pytest.mark.parametrize("n", [60, 240])
def test_a_record_holds_no_row(n):
    frame = people(n)
    frame["name"] = [f"person-{i}-{x:.12f}" for i, x in enumerate(frame["score"])]
    frame.loc[0, "age"] = 93  # alone at the end
    found = audit(
        frame["score"],
        sensitive_features=frame[["age", "sex"]],
        y_true=frame["paid"],
        groups=frame["name"],
        thresholds=[0.5],
        regions={"age >= 90": "above"},
        given=frame[["income"]],
        contributions={"a": frame["score"] / 3, "b": 2 * frame["score"] / 3},
        random_state=0,
    )
    plain = found.to_dict()
    values = set(numbers_in(plain))
    assert not values & set(frame["score"])
    assert not values & set(frame["income"])
    assert not values & set(frame["score"] / 3)
    text = json.dumps(plain)
    for name in frame["name"]:
        assert name not in text
    for score in frame["score"]:
        assert repr(score) not in text
        assert f"{score:.10f}"[:10] not in text
    # Beside a value of few rows there is no mean; of the region of one row no answer.
    one = plain["attributes"][0]
    for curve in [one["curve"], one["decisions"][0]["curve"]]:
        for count, mean in zip(curve["counts"], curve["mean"], strict=True):
            assert count >= 10 or mean is None
    assert one["regions"] == []
    assert any("fewer than 10 rows" in note for note in plain["notes"])
    jsonschema.validate(plain, schema())


def test_numbers_of_fewer_than_ten_rows_are_hidden_whatever_their_weight():
    frame = people(2_000)
    frame.loc[frame["age"] == 18, "age"] = 19
    frame.loc[:2, "age"] = 18
    weight = np.where(frame["age"] == 18, 50.0, 1.0)
    found = audit(frame["score"], sensitive_features=frame[["age"]], sample_weight=weight, random_state=0)
    curve = found.to_dict()["attributes"][0]["curve"]
    place = found.attribute("age").curve.points.index(18.0)
    assert found.attribute("age").curve.counts[place] == 3
    assert (curve["points"][place], curve["mean"][place], curve["counts"][place]) == (None, None, 0)


# Computing it again

AUDIT = ["audit", "s.csv", "--score", "score", "--sensitive", "age", "--json", "a.json"]
AUDITS = {
    "plain": "--sensitive age",
    "outcome": "--sensitive age --label paid --threshold 0.5",
    "several": "--sensitive age --sensitive sex",
    "continuous": "--sensitive income --threshold 0.3 --threshold 0.7",
    "weights": "--sensitive age --weight weight",
    "groups": "--sensitive age --group person",
    "categorical": "--sensitive sex --label paid",
    "regions": "--sensitive age --below 'age >= 62' --above 'age < 30'",
    "factors": "--sensitive age --given income",
    "limits": "--sensitive age --fail-above gap=0.2 --fail-above gdp=0.05",
    "level": "--sensitive age --confidence-level 0.9 --seed 7",
    "trained": "--sensitive age --trained-on",
    "held out": "--sensitive age --held-out --model risk@2 --owner me",
    "counts": "--sensitive age --engine local",
    "counts, several": "--sensitive age --sensitive sex --engine local --label paid",
    "counts, weights": "--sensitive age --weight weight --engine local --threshold 0.5",
    "counts, numbers": "--sensitive age --label income --engine local",
    "sketch, groups": "--sensitive age --group person --engine local",
    "pool": "--sensitive age --group person --engine pool",
    "ray": "--sensitive age --group person --engine ray",
}


@pytest.mark.parametrize("name", AUDITS)
def test_an_audit_is_computed_again_bit_by_bit(name, tmp_path, monkeypatch, capsys):
    import shlex

    if name == "ray":
        pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.Table.from_pandas(people(), preserve_index=False), "s.parquet", row_group_size=300)
    line = shlex.split(f"audit s.parquet --score score --json a.json {AUDITS[name]}")
    assert run(line) in (0, 1)
    capsys.readouterr()
    code = run(["verify", "a.json", "s.parquet"])
    out, err = capsys.readouterr()
    assert code == 0, out + err
    assert "Verified" in out
    assert " 0 differ" in out


def test_what_was_changed_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = people()
    frame.to_csv("s.csv", index=False)
    line = ["audit", "s.csv", "--score", "score", "--sensitive", "age", "--json", "a.json", "--seed", "3"]
    assert run([*line, "--fail-above", "gap=0.5"]) == 0
    plain = read_record("a.json")
    again = audit(
        frame[["score"]], sensitive_features=frame[["age"]], limits={"gap": 0.5}, random_state=3
    )  # the options of the command are others: nothing was read from a file
    assert verify(plain, again).differ == 0
    # A hundred random changes of one leaf, with a digest that fits again.
    rng = np.random.default_rng(0)
    leaves = list(places(plain))
    skipped = ("schema", "digest", "version", "record.versions", "record.platform", "about", "record.layout")
    leaves = [place for place in leaves if not ".".join(map(str, place)).startswith(skipped)]
    found = 0
    for pick in rng.choice(len(leaves), 100, replace=False):
        changed = copy.deepcopy(plain)
        change(changed, leaves[pick])
        changed["digest"] = digest(changed)
        result = verify(changed, again)
        found += result.code != 0
    assert found == 100
    # One digit of one number, and the digest as it was.
    changed = copy.deepcopy(plain)
    changed["attributes"][0]["measures"]["gap"]["estimate"] += 1e-12
    (tmp_path / "b.json").write_text(json.dumps(changed))
    assert run(["verify", "b.json"]) == 1
    assert "digest does not fit" in capsys.readouterr().err
    # A row.
    frame.loc[700, "score"] = np.nextafter(frame.loc[700, "score"], 1.0)
    frame.to_csv("t.csv", index=False)
    assert run(["verify", "a.json", "t.csv"]) == 1
    assert "the column scores score is not the recorded one" in capsys.readouterr().err
    # A seed, an option and a limit, with a digest that fits.
    for place, value in (
        (("seed",), 4),
        (("record", "options", "confidence_level"), 0.9),
        (("record", "options", "limits", "gap"), 0.9),
    ):
        changed = copy.deepcopy(plain)
        put(changed, place, value)
        changed["digest"] = digest(changed)
        (tmp_path / "b.json").write_text(json.dumps(changed))
        assert run(["verify", "b.json", "s.csv"]) == 1, place
    capsys.readouterr()


def places(plain, place=()):
    """Return the place of each number, text and truth value."""
    if isinstance(plain, dict | list):
        items = plain.items() if isinstance(plain, dict) else enumerate(plain)
        for name, value in items:
            yield from places(value, (*place, name))
    elif plain is not None:
        yield place


def put(plain, place, value):
    for name in place[:-1]:
        plain = plain[name]
    plain[place[-1]] = value


def change(plain, place):
    for name in place[:-1]:
        plain = plain[name]
    old = plain[place[-1]]
    if isinstance(old, bool):
        plain[place[-1]] = not old
    elif isinstance(old, int):
        plain[place[-1]] = old + 1
    elif isinstance(old, float):
        plain[place[-1]] = old * (1.0 + 1e-9) + 1e-12
    else:
        plain[place[-1]] = old + "x"


def test_without_rows_a_record_is_consistent_and_never_verified(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    people(300).to_csv("s.csv", index=False)
    assert run([*AUDIT, "--fail-above", "gap=0.9"]) == 0
    capsys.readouterr()
    assert run(["verify", "a.json"]) == 0
    out = capsys.readouterr().out
    assert "Internally consistent" in out
    assert "erified" not in out
    changed = read_record("a.json")
    changed["limits"][0]["state"] = "failed"
    changed["digest"] = digest(changed)
    (tmp_path / "b.json").write_text(json.dumps(changed))
    assert run(["verify", "b.json"]) == 1
    assert "said to be failed, but its numbers say passed" in capsys.readouterr().err


def test_what_cannot_be_read_or_computed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = people(300)
    frame.to_csv("s.csv", index=False)
    for text in ("", "{}", "[1]", '{"schema": "frhsic.audit/3"}', "NaN", "[" * 100_000):
        (tmp_path / "b.json").write_text(text)
        assert run(["verify", "b.json", "s.csv"]) == 2, text[:20]
        assert "must" in capsys.readouterr().err
    assert run(["verify", "none.json", "s.csv"]) == 2
    # Made in Python from arrays without names: no file can be said to hold them.
    found = audit(frame["score"].to_numpy(), sensitive_features=frame["age"].to_numpy(), random_state=0)
    (tmp_path / "c.json").write_text(json.dumps(found.to_dict()))
    assert run(["verify", "c.json", "s.csv"]) == 2
    assert "use frhsic.auditing.verify" in capsys.readouterr().err
    # A column is gone.
    assert run(["audit", "s.csv", "--score", "score", "--sensitive", "age", "--json", "a.json"]) == 0
    frame.drop(columns="age").to_csv("t.csv", index=False)
    assert run(["verify", "a.json", "t.csv"]) == 2
    # Of a sketch made by hand there are no rows to compare with.
    source = open_source(pa.Table.from_pandas(frame, preserve_index=False))
    plain = audit_source(source, scores="score", sensitive_features="age", random_state=0).to_dict()
    assert [one["name"] for one in plain["record"]["columns"]] == ["score", "age"]


def test_other_versions_are_compared_within_a_tolerance():
    frame = people(300)
    found = audit(frame["score"], sensitive_features=frame["age"], random_state=0)
    plain = json.loads(json.dumps(found.to_dict()))
    plain["record"]["versions"]["torch"] = "2.0"
    estimate = plain["attributes"][0]["measures"]["gdp"]["estimate"]
    for factor, code in ((1.0 + 1e-9, 0), (1.0 + 1e-3, 1)):
        plain["attributes"][0]["measures"]["gdp"]["estimate"] = factor * estimate
        plain["digest"] = digest(plain)
        result = verify(plain, found)
        assert result.code == code
        assert result.versions == {"torch": f"2.0 -> {found.record.versions['torch']}"}
    assert "within 1e-06" in str(result)


@cache
def gated():
    """Return an audit of 300 rows with a limit, and its record."""
    frame = people(300)
    found = audit(frame["score"], sensitive_features=frame["age"], limits={"gap": 0.5}, random_state=0)
    return found, json.loads(json.dumps(found.to_dict()))


def forge(changes, version="9.9"):
    """Return the verification of a record with other words, and a digest that fits."""
    found, plain = gated()
    plain = copy.deepcopy(plain)
    for place, value in changes.items():
        put(plain, place, value)
    plain["version"] = plain["record"]["versions"]["frhsic"] = version
    plain["digest"] = digest(plain)
    return verify(plain, found)


def test_words_of_another_version_are_listed_and_never_verified():
    """They were 'within 1e-06', whatever they said, and not listed."""
    target = ("attributes", 0, "measures", "gap", "target")
    result = forge({target: "all people of this country"})
    assert (result.code, result.reworded, result.differ) == (3, 1, 0)
    assert result.lines()[0].startswith(
        "WORDS: attributes.0.measures.gap.target: 'all people of this country'"
    )
    assert result.lines()[-1].startswith("Numbers verified, words not")
    assert forge({}).code == 0
    for place, value in (
        (("limits", 0, "measure"), "gdp"),
        (("limits", 0, "state"), "failed"),
        (("columns", 0, "name"), "income"),
        (("score", "name"), "other"),
        (("about", "title"), "Approved"),
        (("attributes", 0, "names", 0), "income"),
    ):
        assert forge({place: value}).code == 1, place
    _, plain = gated()
    changed = {**plain, "version": "9.9"}
    changed["digest"] = digest(changed)
    assert find_problems(changed) == ("It names two versions of frhsic.",)


def test_every_word_of_a_record_that_was_changed_is_found():
    _, plain = gated()
    skipped = ("schema", "digest", "version", "record.versions", "record.platform", "record.layout")
    for place in places(plain):
        value = plain
        for name in place:
            value = value[name]
        if isinstance(value, str) and not ".".join(map(str, place)).startswith((*skipped, "record.columns")):
            assert forge({place: value + " not"}).code in (1, 3), place


def test_a_changed_row_ends_with_a_verdict_after_at_most_twelve_lines():
    frame = people(300)
    frame.loc[7, "score"] = 0.5
    again = audit(frame["score"], sensitive_features=frame["age"], limits={"gap": 0.5}, random_state=0)
    lines = verify(gated()[1], again).lines()
    assert len(lines) <= 12
    assert lines[-1] == "Not verified: these are not the recorded rows."
    assert not [line for line in lines[:4] if ".null" in line]
    assert "estimate" in lines[1]


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + 400 * "0", 5_000 * "9"])
def test_numbers_of_any_size_differ_at_their_place(number, tmp_path):
    found, plain = gated()
    text = json.dumps(plain).replace('"n": 300', f'"n": {number}', 1)
    (tmp_path / "b.json").write_text(text)
    result = verify(read_record(tmp_path / "b.json"), found)
    assert (result.code, result.differ) == (1, 1)
    assert any(line.startswith("DIFFERS: n: ") for line in result.lines())
    plain = {**read_record(tmp_path / "b.json"), "version": "9"}  # compared within a tolerance
    plain["record"]["versions"]["frhsic"] = "9"
    assert verify(plain, found).differ == 1


def test_a_name_that_an_object_has_twice_is_an_error(tmp_path):
    text = json.dumps(gated()[1]).replace('"n": 300', '"n": 300, "n": 300', 1)
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(ValueError, match=r"hold each name of an object once.*Got 'n' twice"):
        read_record(tmp_path / "b.json")


def test_a_record_is_data_and_a_query_is_not_taken_from_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    people(300).to_csv("s.csv", index=False)
    assert run(["audit", "s.csv", "--score", "score", "--sensitive", "age", "--json", "a.json"]) == 0
    plain = read_record("a.json")
    plain["record"]["options"]["query"] = "drop table scores"
    plain["digest"] = digest(plain)
    (tmp_path / "b.json").write_text(json.dumps(plain))
    capsys.readouterr()
    assert run(["verify", "b.json", "s.csv"]) == 2
    assert "after reading it" in capsys.readouterr().err


def test_the_file_of_the_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    people(300).to_csv("s.csv", index=False)
    (tmp_path / "m.bin").write_bytes(b"model")
    line = [*AUDIT, "--model-file", "m.bin"]
    assert run(line) == 0
    assert read_record("a.json")["about"]["model_sha256"] == hashlib.sha256(b"model").hexdigest()
    assert run(["verify", "a.json", "s.csv", "--model-file", "m.bin"]) == 0
    (tmp_path / "m.bin").write_bytes(b"other")
    assert run(["verify", "a.json", "--model-file", "m.bin"]) == 1
    assert "not the recorded one" in capsys.readouterr().err


def test_two_processes_write_the_same_record(tmp_path):
    people(300).to_csv(tmp_path / "s.csv", index=False)
    texts = []
    for name in ("a.json", "b.json"):
        line = f"audit s.csv --score score --sensitive age --json {name}".split()
        subprocess.run([sys.executable, "-m", "frhsic", *line], cwd=tmp_path, check=True, capture_output=True)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]


# Limits


def test_states_of_limits():
    frame = people(1_500)
    kept = audit(frame["score"], sensitive_features=frame["age"], random_state=0)
    gap = kept.attribute("age").measures["gap"]
    for at_most, state in ((gap.high, "passed"), (gap.estimate, "not shown"), (gap.low / 2, "failed")):
        found = audit(
            frame["score"], sensitive_features=frame["age"], limits={"gap": at_most}, random_state=0
        )
        assert [one.state for one in found.limits] == [state]
        assert found.attribute("age").measures["gap"] == gap
    missing = audit(
        frame["score"], sensitive_features=frame["age"], limits={"calibration_gap": 0.1}, random_state=0
    )
    assert missing.limits[0].state == "not measured"
    for limits, match in (
        ({"gab": 1.0}, "name measures"),
        ({"gap": "x"}, "a number"),
        ({"gap": -1}, "a number"),
    ):
        with pytest.raises(ArgumentError, match=match):
            audit(frame["score"], sensitive_features=frame["age"], limits=limits)
    with pytest.raises(ArgumentError, match="keys among"):
        audit(frame["score"], sensitive_features=frame["age"], about={"modell": "x"})


def test_limits_from_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    people(800).to_csv("s.csv", index=False)
    line = [*AUDIT, "--limits", "l.toml"]
    (tmp_path / "l.toml").write_text(
        'fixed = 2026-11-01\nfail_on = "upper"\n[limits]\ngap = 0.00001\ngdp = 0.9\n'
    )
    assert run(line) == 1
    plain = read_record("a.json")
    assert plain["about"]["limits_fixed"] == "2026-11-01"
    assert {one["measure"]: one["at_most"] for one in plain["limits"]} == {"gap": 0.00001, "gdp": 0.9}
    for text, match in (
        ("gap = 0.1", "hold fixed, fail_on, limits"),
        ("[limits]\ngab = 1", "MEASURE=NUMBER"),
        ("[limits]\ngap = 'a'", "a number for each"),
        ("[limits", "be a TOML file"),
        ("[limits]\ngap = -1", "MEASURE=NUMBER"),
    ):
        (tmp_path / "l.toml").write_text(text)
        capsys.readouterr()
        assert run(line) == 2, text
        assert match in capsys.readouterr().err
    (tmp_path / "l.toml").write_text("[limits]\ngap = 0.9")
    assert run([*line, "--fail-above", "gap=0.8"]) == 2


def test_rows_instead_of_an_audit_are_told_what_to_pass():
    with pytest.raises(ArgumentError, match=r"'found' must be an audit.*random_state"):
        verify({}, {"scores": [1.0]})
