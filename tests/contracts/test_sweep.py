"""The sweep of the reproduction: what it trains, and that killing it changes nothing."""

import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks._pool import spread
from benchmarks._protocol import published_mi
from benchmarks.paper import sweep
from benchmarks.paper._methods import BUDGETS, CONTENDERS, LAMS, AsWritten
from frhsic.dependence import EIPM
from frhsic.kernels import Gaussian

ROOT = Path(__file__).parents[2]
NEEDS_DATA = pytest.mark.skipif(
    "FRHSIC_DATA_HOME" not in os.environ, reason="FRHSIC_DATA_HOME does not name the folder of the real data"
)
METHODS = ("Unfair", "FRHSIC-published")


def command(folder, *more):
    return [
        *(sys.executable, "-m", "benchmarks", "run", "--datasets", "crime-householdsize", "--splits", "1"),
        *("--methods", *METHODS, "--epochs", "40", "--workers", "2"),
        *("--table", str(folder / "sweep.csv"), "--models", str(folder / "models"), *more),
    ]


def rows(folder):
    with (folder / "sweep.csv").open(newline="") as file:
        return [{**row, "seconds": "", "commit": ""} for row in csv.DictReader(file)]


@NEEDS_DATA
def test_killed_twice_at_random_the_table_is_the_same(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start = time.monotonic()
    subprocess.run(command(whole), cwd=ROOT, check=True, capture_output=True)
    whole_seconds = time.monotonic() - start
    chance = random.Random(0)
    for _ in range(2):
        running = subprocess.Popen(
            command(killed),
            cwd=ROOT,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            running.wait(chance.uniform(0.2, 0.9) * whole_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    finished = subprocess.run(command(killed), cwd=ROOT, check=True, capture_output=True, text=True)
    assert "cells to train" in finished.stdout
    assert rows(killed) == rows(whole)
    assert len(rows(whole)) == sum(
        len(CONTENDERS[method].strengths(form)) for method in METHODS for form in CONTENDERS[method].forms
    )


@NEEDS_DATA
@pytest.mark.parametrize("method", ["FRHSIC-published", "ADV", "Reg-GDP"])
def test_some_strengths_alone_are_the_models_of_the_whole_pass(method, tmp_path):
    data = sweep.split_of("crime-householdsize", 0)
    cell = sweep.Cell("crime-householdsize", method, "lam", 0, 4)
    only = (0.1, 10.0)
    alone, _ = sweep.trained(cell, data, tmp_path, only=only)
    whole, seconds = sweep.trained(cell, data, tmp_path)
    expected = [whole[LAMS.index(one)].predict(data.x_test) for one in only]
    for model, values in zip(alone, expected, strict=True):
        np.testing.assert_allclose(model.predict(data.x_test), values, rtol=1e-4, atol=1e-6)
    # Where the whole pass is kept, its models are taken.
    kept, seconds_kept = sweep.trained(cell, data, tmp_path, only=only)
    assert seconds_kept == pytest.approx(seconds, abs=0.051)
    np.testing.assert_array_equal(kept[1].predict(data.x_test), expected[1])


def test_every_method_has_the_same_strengths():
    for name, one in CONTENDERS.items():
        if name != "Unfair":
            assert one.strengths("lam") == LAMS
            assert one.strengths("budget") == BUDGETS
    assert CONTENDERS["Unfair"].strengths("lam") == (0.0,)
    assert len(LAMS) == len(BUDGETS) == 9


def test_no_colour_and_no_marker_stands_for_two_methods():
    for attribute in ("colour", "marker"):
        assert len({getattr(one, attribute) for one in CONTENDERS.values()}) == len(CONTENDERS)


def test_frem_as_written_is_the_eipm_but_for_its_sample_of_rows():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2, 30, 3, dtype=torch.float64, generator=generator)  # 32 rows are all of them
    s = torch.rand(30, 1, dtype=torch.float64, generator=generator)
    expected = EIPM(Gaussian(1.0), 0.5, range_s=1.0)(z, s)
    torch.testing.assert_close(AsWritten()(z, s), expected, rtol=1e-9, atol=0.0)
    with pytest.raises(ValueError, match="'weights' must be None"):
        AsWritten()(z, s, torch.rand(30, dtype=torch.float64))


def test_frem_as_written_rounds_in_a_stack_as_it_does_alone():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(9, 1, 50, generator=generator) + 0.01 * torch.randn(9, 256, 50, generator=generator)
    s = torch.rand(256, 1, generator=generator)

    def value(z):
        torch.manual_seed(0)  # which draws the rows
        return AsWritten()(z, s)

    assert value(z).equal(torch.stack([value(one) for one in z]))


def test_mutual_information_is_that_of_the_published_formula():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 20, 60) / 20.0
    z = rng.normal(size=(60, 4)) * [3.0, 1.0, 0.1, 0.1] + s[:, None]
    centred = z - z.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    kept = max(2, 1 + int(np.searchsorted(np.cumsum(values[::-1]) / values.sum(), 0.95)))
    x = centred @ vectors[:, ::-1][:, :kept]
    harmonic = lambda n: sum(1.0 / i for i in range(1, n)) - 0.5772156649015329  # noqa: E731
    total = 0.0
    for i in range(60):
        dx, ds = np.abs(x - x[i]).max(axis=1), np.abs(s - s[i])
        reach = np.sort(np.maximum(dx, ds))[5] + 1e-15
        total += harmonic(int((dx <= reach).sum())) + harmonic(int((ds <= reach).sum()))
    expected = max(0.0, harmonic(5) + harmonic(60) - total / 60)
    assert published_mi(z, s) == pytest.approx(expected, abs=1e-9)


def test_halves_of_the_held_out_rows_are_judged_like_the_whole():
    class Model:
        def transform(self, x):
            return x

        def decision_function(self, x):
            return x[:, 0]

    rng = np.random.default_rng(1)
    x, x_test = rng.normal(size=(300, 3)), rng.normal(size=(100, 3))
    y, y_test = (x[:, 0] > 0.3).astype(int), (x_test[:, 0] > 0.3).astype(int)
    data = sweep.Split(x, y, rng.uniform(size=300), x_test, y_test, rng.uniform(size=100), False)
    found = sweep.judged(Model(), data, np.arange(300))
    assert found["perf"] == np.mean((x_test[:, 0] > 0) == y_test) == (found["perf_a"] + found["perf_b"]) / 2
    assert found["perf_base"] == np.mean(y_test == 0)
    even = sweep.Split(x, y, data.s, x_test[::2], y_test[::2], data.s_test[::2], False)
    alone = sweep.judged(Model(), even, np.arange(300))
    assert alone["gdp_grid"] == found["gdp_grid_a"]
    assert alone["gdp_population"] == found["gdp_population_a"]


@NEEDS_DATA
def test_scaling_on_all_rows_moves_held_out_rows_into_the_range():
    train, every = (sweep.split_of("compas", 1, on_all=one) for one in (False, True))
    assert train.x_test.max() > 1 >= every.x_test.max()
    assert (train.x != every.x).any(axis=0).sum() > 1
    np.testing.assert_array_equal(train.y_test, every.y_test)


def square(number):
    return number**2


def test_tasks_are_spread_and_announced(capsys):
    assert sorted(spread([1, 2, 3], square, cost=float, workers=2)) == [1, 4, 9]
    assert "3/3" in capsys.readouterr().out


def square_or_die(task):
    number, grave = task
    if number == 2 and not grave.exists():
        grave.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def test_what_a_killed_worker_had_begun_is_begun_again(tmp_path):
    tasks = [(number, tmp_path / "grave") for number in (1, 2, 3)]
    assert sorted(spread(tasks, square_or_die, cost=lambda task: task[0], workers=2)) == [1, 4, 9]
    assert tasks[0][1].exists()


def test_a_ray_cluster_gives_the_same_results():
    ray = pytest.importorskip("ray", reason="needs frhsic[ray]")
    try:
        assert sorted(spread([1, 2, 3], square, cost=float, ray=True)) == [1, 4, 9]
    finally:
        ray.shutdown()
