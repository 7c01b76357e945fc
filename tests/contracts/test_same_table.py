"""The table of the same rows has the same digest, whoever counts them and in which order; so have results."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from frhsic.dependence import HSIC
from frhsic.inference import confidence_interval, independence_test
from frhsic.inference._question import Observations
from frhsic.inference._table import table_of
from frhsic.sources import read_table, write_table
from frhsic.table import ScoreTable

N = 2_000
CHUNKS = [(N,), (1, N - 1), (700, 1_300), (250,) * 8, (97,) * 20 + (60,), (N - 1, 1), (1_000, 1_000)]
COLUMNS = {
    "values": ["age"],
    "ranges": ["income"],
    "labels": ["zone"],
    "yes": ["old"],
    "two": ["age", "zone"],
}
each_columns = pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
each_weight = pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weights"])


def make_columns():
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, N)
    return {
        "score": 1 / (1 + np.exp(-(age - 54) / 40 - rng.normal(size=N))),
        "age": age,
        "income": np.round(np.exp(10.6 + 0.9 * rng.normal(size=N)), 2),
        "zone": np.array(["north", "Süd", "10", "east"])[rng.integers(0, 4, N)],
        "old": age > 60,
        "w": rng.exponential(size=N),
    }


def make_frames(folder):
    columns = make_columns()
    pandas, polars, arrow = pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)
    zones = pd.CategoricalDtype(["north", "nowhere", "east", "10", "Süd"], ordered=True)
    write_table(arrow, folder / "rows.parquet")
    order = np.random.default_rng(1).permutation(N)
    return {
        "pandas": pandas,
        "categories of pandas": pandas.astype({"zone": zones, "age": "Int64"}),
        "pandas on Arrow": pandas.convert_dtypes(dtype_backend="pyarrow"),
        "polars": polars,
        "categories of polars": polars.with_columns(pl.col("zone").cast(pl.Categorical)),
        "pyarrow": arrow,
        "dictionary": arrow.set_column(3, "zone", arrow["zone"].dictionary_encode()),
        "chunks": pa.concat_tables([arrow.slice(0, 700), arrow.slice(700)]),
        "Parquet": read_table(folder / "rows.parquet"),
        "Parquet, by pandas": pd.read_parquet(folder / "rows.parquet"),
        "Parquet, by polars": pl.read_parquet(folder / "rows.parquet"),
        "shuffled": pandas.iloc[order],
        "reversed": polars.reverse(),
        "arrays": columns,
    }


def select(frame, names):
    if isinstance(frame, dict):
        return {name: frame[name] for name in names}
    return frame.select(names) if isinstance(frame, pa.Table) else frame[names]


def digest_of(frame, columns, weighted):
    """Of the table that tests and intervals use."""
    weights = frame["w"] if weighted else None
    rows = Observations.read(frame["score"], select(frame, columns), weights).drop_zero_weights()
    return table_of(rows.z, rows.s, rows.w).digest


@each_columns
@each_weight
def test_the_digest_is_the_same_from_every_kind_of_frame_and_file(columns, weighted, tmp_path):
    frames = make_frames(tmp_path)
    digests = {name: digest_of(frame, columns, weighted) for name, frame in frames.items()}
    assert digests == dict.fromkeys(frames, digests["pandas"])


@each_columns
@each_weight
@pytest.mark.parametrize("threads", [1, 2])
def test_the_digest_is_the_same_for_rows_in_any_order_with_any_threads(columns, weighted, threads):
    frame, rng = pd.DataFrame(make_columns()), np.random.default_rng(5)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    digests = {digest_of(frame, columns, weighted)}
    try:
        torch.set_num_threads(threads)
        digests |= {digest_of(frame.iloc[rng.permutation(N)], columns, weighted) for _ in range(8)}
    finally:
        torch.set_num_threads(before)
    assert len(digests) == 1


@pytest.mark.parametrize("columns", [["income"], ["age", "zone"]], ids=["ranges", "joint"])
@pytest.mark.parametrize("chunks", CHUNKS, ids=[f"{len(chunks)} chunks, {chunks[0]}" for chunks in CHUNKS])
@pytest.mark.parametrize("threads", [1, 2])
@each_weight
def test_tables_of_chunks_add_up_to_the_table(columns, chunks, threads, weighted):
    rows = make_columns()
    arguments = {"names": columns, "cells": 32, "levels": 32}

    def count(at, **given):
        s = [rows[name][at] for name in columns]
        w = rows["w"][at] if weighted else None
        outcome = rows["old"][at]
        return ScoreTable.from_rows(
            rows["score"][at], s, outcome=outcome, sample_weight=w, **arguments, **given
        )

    whole = count(slice(None))
    given = {"score_axis": whole.score, "s_axes": whole.s, "outcome_axis": whole.outcome}
    if weighted:
        given["weight_units"] = whole.weight_unit, whole.square_unit
    ends = np.cumsum(chunks)
    parts = [slice(end - size, end) for end, size in zip(ends, chunks, strict=True)]
    with ThreadPoolExecutor(threads) as pool:
        first, *others = pool.map(lambda at: count(at, **given), parts)
    for other in others:
        first = first + other
    assert first.digest == whole.digest


def test_weights_too_large_for_given_units_are_refused():
    z, s = np.array([0.0, 1.0]), np.array([1.0, 2.0])
    small = ScoreTable.from_rows(z, s, sample_weight=np.array([0.5, 1.0]))
    units = small.weight_unit, small.square_unit
    with pytest.raises(ValueError, match=r"'sample_weight' must be at most .* in these units"):
        ScoreTable.from_rows(z, s, sample_weight=np.array([1.0, 9.0]), weight_units=units)
    again = ScoreTable.from_rows(z, s, sample_weight=np.array([0.5, 1.0]), weight_units=units)
    assert again.digest == small.digest


@each_weight
def test_tests_and_intervals_are_the_same_from_every_frame_in_any_order(weighted, tmp_path):
    frames, results = make_frames(tmp_path), {}
    for name in ("pandas", "polars", "Parquet", "shuffled"):
        frame = frames[name]
        w = frame["w"] if weighted else None
        test = independence_test(
            frame["score"], frame["age"], sample_weight=w, n_permutations=19, random_state=0
        )
        found = confidence_interval(
            frame["score"],
            frame["age"],
            dependence=HSIC(normalized=True),
            sample_weight=w,
            n_draws=199,
            random_state=0,
        )
        results[name] = (test.statistic, test.pvalue, test.null, found.low, found.estimate, found.high)
    assert results == dict.fromkeys(results, results["pandas"])


# Another processor

AUDIT = """
import json
import numpy as np
from threadpoolctl import threadpool_info
from frhsic import audit

rng = np.random.default_rng(0)
age = rng.integers(18, 90, 1_000)
score = 1 / (1 + np.exp(-(age - 54) / 40 - rng.normal(size=1_000)))
found = audit(score, sensitive_features={"age": age}, thresholds=(0.5,), random_state=0)
kernels = {library.get("architecture") for library in threadpool_info() if library["user_api"] == "blas"}
print(json.dumps([sorted(kernels), f"{found}{found.to_markdown()}", found.to_dict()]))
"""


def audit_with(kernels):
    """Return the printed text and the record of an audit with the OpenBLAS kernels of some processor."""
    environment = {**os.environ, "OPENBLAS_CORETYPE": kernels}
    command = [sys.executable, "-W", "ignore", "-c", AUDIT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    used, text, record = json.loads(done.stdout.splitlines()[-1])
    if used != [kernels]:
        pytest.skip(f"This processor cannot run the {kernels} kernels of OpenBLAS: it ran {used}.")
    return text, record


def numbers_in(document):
    if isinstance(document, dict | list):
        parts = document.values() if isinstance(document, dict) else document
        return [number for part in parts for number in numbers_in(part)]
    return [document] if isinstance(document, float) else []


def test_an_audit_prints_the_same_digits_with_the_kernels_of_another_processor():
    text, record = audit_with("Haswell")
    other_text, other_record = audit_with("SkylakeX")
    assert other_text == text
    numbers, others = numbers_in(record), numbers_in(other_record)
    assert len(numbers) > 100
    assert others == pytest.approx(numbers, rel=1e-9, abs=1e-12)
