"""An audit in MLflow: what a real server has of it afterwards."""

import importlib.metadata
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from frhsic.auditing import audit, find_problems, read_record, verify
from frhsic.integrations.mlflow import log_audit


def has_server():
    """Return whether MLflow is installed with its server: mlflow-skinny is only the client."""
    try:
        return bool(importlib.metadata.version("mlflow"))
    except importlib.metadata.PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.skipif(not has_server(), reason="needs mlflow with its server"),
    # Of MLflow and what it imports.
    pytest.mark.filterwarnings("default"),
]
NAMES = ["age (years)", "age/years_", "שלום", "a|b:c%d\n<e>", "../../etc", "x" * 300]


@pytest.fixture(scope="module", autouse=True)
def library():
    """Import MLflow once: it takes ten seconds, which no test should seem to take."""
    return pytest.importorskip("mlflow")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Start a server with its own database and files; yield its address."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/runs.db"]
    command += ["--artifacts-destination", str(folder / "files")]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(f"{url}/health", process, folder / "log")
            yield url
        finally:
            os.killpg(process.pid, 15)  # the server and its workers, in a session of their own
            process.wait(60)


def wait_for(url, process, log):
    for _ in range(1_000):  # it takes ten seconds, and minutes on a busy machine
        assert process.poll() is None, log.read_text()[-2_000:]
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-2_000:])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    age = rng.integers(18, 90, 400)
    score = 1.0 / (1.0 + np.exp(-(age - 54) / 20 - rng.normal(size=400)))
    return score, {"age": age}


@pytest.fixture(scope="module")
def found(rows):
    score, s = rows
    return audit(
        score,
        sensitive_features=s,
        y_true=np.random.default_rng(1).random(400) < score,
        thresholds=[0.5],
        limits={"gap": 0.5, "gdp": 0.18},
        about={"model": "risk@2.1"},
        random_state=0,
    )


@pytest.fixture
def client(server, monkeypatch, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(server)
    yield mlflow.MlflowClient()
    while mlflow.active_run() is not None:
        mlflow.end_run()


def test_a_server_has_metrics_tags_and_files_of_an_audit(client, found, rows, tmp_path):
    import mlflow

    with mlflow.start_run() as run:
        assert log_audit(found) == run.info.run_id
    data = client.get_run(run.info.run_id).data
    found = found.released  # what leaves is rounded to what its intervals support
    gap, decision = found.attribute("age").measures["gap"], found.attribute("age").decisions[0].gap
    expected = {f"frhsic/age/gap/{end}": getattr(gap, end) for end in ("estimate", "low", "high")}
    expected |= {
        "frhsic/age/gap_of_decisions_at_0.5/high": decision.high,
        "frhsic/age/independence_test/pvalue": found.attribute("age").test.reported,
        "frhsic/age/calibration_gap/low": found.attribute("age").outcome.calibration_gap.low,
        "frhsic/age/kernel_hgr/estimate": found.attribute("age").measures["kernel_hgr"].estimate,
    }
    assert {name: data.metrics[name] for name in expected} == pytest.approx(expected, abs=1e-15)
    frame = found.to_frame()
    numbers = int(frame[["estimate", "low", "high", "pvalue"]].notna().to_numpy().sum())
    assert len(data.metrics) == numbers
    digest = found.to_dict()["digest"]
    tags = {name: text for name, text in data.tags.items() if name.startswith("frhsic.")}
    states = [one.state for one in found.limits]
    assert states == ["passed", "not shown"]
    assert tags == {
        "frhsic.digest": digest,
        "frhsic.version": found.version,
        "frhsic.model": "risk@2.1",
        "frhsic.limits": "not shown",
    }
    folder = client.download_artifacts(run.info.run_id, "frhsic", str(tmp_path))
    assert sorted(os.listdir(folder)) == ["audit.html", "audit.json", "audit.md"]
    record = read_record(f"{folder}/audit.json")
    assert record["digest"] == digest
    assert find_problems(record) == ()
    again = audit(
        rows[0], sensitive_features=rows[1], y_true=np.random.default_rng(1).random(400) < rows[0],
        thresholds=[0.5], limits={"gap": 0.5, "gdp": 0.18}, about={"model": "risk@2.1"}, random_state=0,
    )  # fmt: skip
    assert verify(record, again).code == 0
    with open(f"{folder}/audit.md", encoding="utf-8") as file:
        assert file.read() == found.to_markdown()
    with open(f"{folder}/audit.html", encoding="utf-8") as file:
        assert file.read().startswith("<!doctype html>")
    runs = client.search_runs(
        ["0"], "tags.`frhsic.limits` != 'passed' and metrics.`frhsic/age/gap/high` < 0.9"
    )
    assert [one.info.run_id for one in runs] == [run.info.run_id]


def test_a_run_that_was_started_for_an_audit_is_ended_again(client, found):
    import mlflow

    run = log_audit(found)
    assert mlflow.active_run() is None
    assert client.get_run(run).info.status == "FINISHED"
    with mlflow.start_run():
        log_audit(found)
        assert mlflow.active_run() is not None


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_the_client_itself_does_not_take_some_of_these_names(client, name):
    """Return without an error only for names that MLflow takes: else the next test would show nothing."""
    import mlflow

    run = client.create_run("0")
    if name == "שלום":
        client.log_metric(run.info.run_id, f"frhsic/{name}/gap", 1.0)
        return
    if name == "age/years_":
        return  # taken, but with one level more
    with pytest.raises(mlflow.MlflowException):
        client.log_metric(run.info.run_id, f"frhsic/{name}/gap", 1.0)


def test_any_name_of_a_column_becomes_a_metric_of_its_own(client):
    rng = np.random.default_rng(0)
    s = {name: rng.normal(size=200) for name in NAMES}
    found = audit(rng.random(200), sensitive_features=s, random_state=0)
    run = client.create_run("0").info.run_id
    assert log_audit(found, run_id=run, prefix="test-rows") == run
    metrics = client.get_run(run).data.metrics
    attributes = {name.split("/")[1] for name in metrics}
    assert attributes >= {"age_years_", "age_years__2", "שלום", "a_b_c_d_e_", "_.._etc", "x" * 80}
    assert len(attributes) == len(NAMES) + 1  # jointly
    assert all(re.fullmatch(r"test-rows/[^/]+/[^/]+/(estimate|low|high|pvalue)", name) for name in metrics)
    for one, attribute in zip(found.released.attributes, ("age_years_", "age_years__2"), strict=False):
        assert metrics[f"test-rows/{attribute}/gap/estimate"] == pytest.approx(one.measures["gap"].estimate)
    tags = client.get_run(run).data.tags
    assert "test-rows.limits" not in tags
    assert "test-rows.model" not in tags


def test_without_a_run_mlflow_starts_one_and_ends_it_and_a_wrong_prefix_starts_none(client, found):
    import mlflow

    for prefix in ("", "a/b", "a b", "x" * 51):
        with pytest.raises(ValueError, match=r"^'prefix' must be at most 50 letters"):
            log_audit(found, prefix=prefix)
    assert mlflow.active_run() is None
    run = log_audit(found)
    assert mlflow.active_run() is None  # it was ended again
    assert client.get_run(run).info.status == "FINISHED"
    assert client.get_run(run).data.tags["frhsic.digest"] == json.loads(json.dumps(found.to_dict()))["digest"]


def test_importing_the_module_does_not_import_mlflow():
    code = "import sys, frhsic.integrations.mlflow; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_mlflow_the_error_says_what_to_install(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"pip install 'frhsic\[mlflow\]'"):
        log_audit(found)
