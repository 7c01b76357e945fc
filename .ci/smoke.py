"""Import every module, call every extra once and run every command once: python .ci/smoke.py FOLDER."""

import contextlib
import importlib
import io
import os
import pkgutil
import re
import subprocess
import sys
import time

import numpy as np

os.chdir(sys.argv[1])
start = time.monotonic()


def say(what):
    print(f"{time.monotonic() - start:6.1f} s  {what}", flush=True)


def frhsic(*arguments, code=0):
    """Run a command in this process: starting one for each takes longer than the commands."""
    from frhsic.cli import run

    say("frhsic " + " ".join(arguments)[:90])
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = run(list(arguments))
    if found != code:
        sys.exit(f"exit code {found}\n{out.getvalue()}\n{err.getvalue()}")
    return out.getvalue()


def check_imports():
    import frhsic as package

    modules = [m.name for m in pkgutil.walk_packages(package.__path__, "frhsic.") if "__main__" not in m.name]
    for name in modules:
        importlib.import_module(name)
    say(f"{len(modules)} modules import")


def check_commands():
    g = np.random.default_rng(0)
    age = g.integers(18, 80, 300)
    risk = age / 80 + g.normal(size=300)
    job = np.array(["chef", "nurse"])[g.integers(0, 2, 300)]
    with open("t.csv", "w") as file:
        file.write("age,risk,job,paid\n")
        for row in zip(age, risk, job, (risk > 0.5).astype(int), strict=True):
            file.write(",".join(map(str, row)) + "\n")
    commands = re.findall(r"^  ([a-z]+)  ", frhsic("--help").split("Commands:")[1], re.MULTILINE)
    # A new command must be run below, too.
    known = ["audit", "compare", "datasets", "frontier", "predict", "proxies", "repair", "train", "verify"]
    assert sorted(commands) == known, commands
    for name in commands:
        assert "--help" in frhsic(name, "--help")
    installed = subprocess.run(["frhsic", "--version"], capture_output=True, text=True)
    assert frhsic("--version") == installed.stdout
    frhsic("datasets")
    target = ["t.csv", "--target", "paid", "--sensitive", "age", "--epochs", "2"]
    frhsic("train", *target, "--holdout", "0.3", "--save-holdout", "held.parquet", "-o", "m.frhsic")
    frhsic("predict", "m.frhsic", "held.parquet", "-o", "scores.parquet", "--keep", "age", "--keep", "job")
    score = ["scores.parquet", "--score", "score", "--sensitive", "age"]
    frhsic("audit", *score, "--sensitive", "job", "--held-out", "--report", "a.html", "--json", "a.json",
           "--markdown", "a.md")  # fmt: skip
    frhsic("verify", "a.json", "scores.parquet")
    frhsic("compare", "a.json", "a.json", "--data", "scores.parquet", "scores.parquet", "--json", "c.json")
    frhsic("audit", *score, "--fail-above", "gdp=0.0000001", "--fail-on", "upper", code=1)
    frhsic("audit", *score, "--engine", "local")
    frhsic("repair", *score, "-o", "repaired.parquet")
    frhsic("proxies", "t.csv", "--sensitive", "age", "--plot", "p.png", "--json", "p.json")
    trees = [*target[:-2], "--model", "lightgbm"]
    frhsic("train", *trees, "-o", "trees.frhsic")
    frhsic("predict", "trees.frhsic", "held.parquet", "-o", "s.csv", code=2)
    frhsic("predict", "trees.frhsic", "held.parquet", "-o", "s.csv", "--backend", "lightgbm")
    frhsic("frontier", *target, "--budgets", "0.5", "-o", "f.frhsic", "--plot", "f.png", "--json", "f.json")


def check_databases():
    import sqlite3

    import duckdb

    query = "select risk, age from people"
    duck, lite = duckdb.connect("t.duckdb"), sqlite3.connect("t.db")
    duck.execute("create table people as select * from read_csv('t.csv')")
    lite.execute("create table people (age integer, risk real)")
    lite.executemany(
        "insert into people values (?, ?)", duck.execute("select age, risk from people").fetchall()
    )
    lite.commit()
    for connection, file in ((duck, "t.duckdb"), (lite, "t.db")):
        connection.close()
        options = ["--score", "risk", "--sensitive", "age", "--json", f"{file}.json"]
        frhsic("audit", file, "--query", query, *options)
        frhsic("verify", f"{file}.json", file, "--query", query)


def check_libraries():
    from frhsic.persistence import export_onnx, load

    export_onnx(load("m.frhsic")[-1], "m.onnx")
    import onnxruntime

    onnxruntime.InferenceSession("m.onnx")
    say("onnx, onnxruntime")
    import pandas as pd

    from frhsic.sources import open_source

    frame = pd.read_parquet("scores.parquet")
    assert sum(batch.num_rows for batch in open_source(f"file://{os.getcwd()}/scores.parquet")) == len(frame)
    say("pandas, fsspec")
    import dcor
    import fairlearn.metrics

    x, y = frame["score"].to_numpy(), frame["age"].to_numpy(dtype=float)
    dcor.distance_correlation(x, y)
    fairlearn.metrics.demographic_parity_difference(x > 0.5, x > 0.5, sensitive_features=frame["job"])
    from hyppo.independence import Hsic

    Hsic().statistic(x[:50, None], y[:50, None])
    say("dcor, fairlearn, hyppo")
    import adbc_driver_postgresql.dbapi
    import aif360.metrics
    import fairret.loss

    say(f"{adbc_driver_postgresql.__name__}, {aif360.__name__}, {fairret.__name__} import")
    # One score is counted; groups are sketched.
    grouped = ["--score", "score", "--sensitive", "age", "--group", "age"]
    frhsic("audit", "scores.parquet", *grouped, "--engine", "ray")


if __name__ == "__main__":
    check_imports()
    check_commands()
    check_databases()
    check_libraries()
    say("every command ran")
