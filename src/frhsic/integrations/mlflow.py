"""Audits in MLflow: numbers as metrics, record, report and summary as artefacts of a run."""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Iterator
from typing import Final

from frhsic._checks import ArgumentError
from frhsic.auditing import Audit, list_numbers

__all__ = ["log_audit"]

# Of a test and of a measure, as metrics.
_FIELDS: Final = {"estimate": "estimate", "low": "low", "high": "high", "reported": "pvalue"}
# MLflow takes letters, digits, spaces and / . - _ : in a name. Slashes are ours; Windows has no colon.
_REFUSED: Final = re.compile(r"[^\w.\-]+")
_LONGEST: Final = 80  # of an attribute, and of a measure: MLflow takes 250 for all
_STATES: Final = ("passed", "not shown", "not measured", "failed")  # the last of them is reported
_METRICS: Final = 1_000  # of one request


def log_audit(found: Audit, *, run_id: str | None = None, prefix: str = "frhsic") -> str:
    """Log an audit to a run of MLflow: metrics, tags, and three files.

    Metrics are ``prefix/attribute/measure/`` and ``estimate``, ``low``, ``high`` or ``pvalue``. Characters
    that MLflow does not take in a name become underscores. Files are ``prefix/audit.json`` (the record that
    ``frhsic verify`` reads), ``audit.html`` and ``audit.md``. Tags are ``prefix.digest``, ``prefix.version``,
    ``prefix.model`` and, of an audit with limits, ``prefix.limits``: the worst state of any of them.

    Parameters
    ----------
    found : Audit
    run_id : str, optional
        The run to log to. None is the active run; without one a run is started, and ended again.
    prefix : str, default="frhsic"
        Of all names. Give a second audit of the same run another one.

    Returns
    -------
    str
        The id of the run.

    Examples
    --------
    >>> import mlflow  # doctest: +SKIP
    >>> with mlflow.start_run():  # doctest: +SKIP
    ...     log_audit(found)
    """
    if not re.fullmatch(r"[\w-]{1,50}", prefix):
        must = "be at most 50 letters, digits, dashes and underscores"
        raise ArgumentError("prefix", must, repr(prefix[:60]), "Leave it out for frhsic.")
    try:
        import mlflow
    except ImportError as error:
        message = "'log_audit' needs mlflow. Install it: pip install 'frhsic[mlflow]'."
        raise ImportError(message) from error
    from frhsic.report import render_report

    found = found.released
    record = found.to_dict()
    files = {
        "audit.json": json.dumps(record, indent=2, allow_nan=False) + "\n",
        "audit.html": render_report(found),
        "audit.md": found.to_markdown(),
    }
    client = mlflow.MlflowClient()
    now = int(1_000 * time.time())
    metrics = [mlflow.entities.Metric(f"{prefix}/{name}", value, now, 0) for name, value in _metrics(found)]
    tags = [mlflow.entities.RunTag(f"{prefix}.{name}", text) for name, text in _tags(found, record["digest"])]
    with contextlib.ExitStack() as own:
        run = run_id
        if run is None:
            active = mlflow.active_run() or own.enter_context(mlflow.start_run())
            run = str(active.info.run_id)
        for name, text in files.items():
            client.log_text(run, text, f"{prefix}/{name}")
        for start in range(0, len(metrics), _METRICS):
            client.log_batch(run, metrics=metrics[start : start + _METRICS])
        client.log_batch(run, tags=tags)  # last: a run with a digest has everything
    return run


def _metrics(found: Audit) -> Iterator[tuple[str, float]]:
    """Return every finite number of an audit by its name in MLflow."""
    attributes: set[str] = set()
    for one in found.every:
        attribute = _make_name(one.name, attributes)
        measures: set[str] = set()
        for measure, result in list_numbers(one):
            name = _make_name(measure, measures)
            for field, shown in _FIELDS.items():
                value = getattr(result, field, None)
                if value is not None and math.isfinite(value):
                    yield f"{attribute}/{name}/{shown}", float(value)


def _make_name(text: str, taken: set[str]) -> str:
    """Return a name that MLflow takes and nothing else has; add it to those taken.

    Names may become files, on systems that do not tell a from A.

    Examples
    --------
    >>> taken = set()
    >>> _make_name("age (years)", taken), _make_name("age/years_", taken), _make_name("..", taken)
    ('age_years_', 'age_years__2', '_')
    """
    plain = _REFUSED.sub("_", text)[:_LONGEST].strip(".") or "_"
    name, count = plain, 1
    while name.casefold() in taken:
        count += 1
        name = f"{plain}_{count}"
    taken.add(name.casefold())
    return name


def _tags(found: Audit, digest: str) -> Iterator[tuple[str, str]]:
    yield "digest", digest
    yield "version", found.version
    if found.about.model is not None:
        yield "model", found.about.model
    if found.limits:
        yield "limits", max((one.state for one in found.limits), key=_STATES.index)
