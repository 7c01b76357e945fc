"""Pipelines: the last step of one, and the metadata that its steps request."""

from __future__ import annotations

from typing import Any

import sklearn
from sklearn.pipeline import Pipeline


def last_step(member: Any) -> Any:
    """Return the last step of a Pipeline, or the estimator."""
    return member.steps[-1][1] if isinstance(member, Pipeline) else member


def route(steps: Pipeline, **metadata: Any) -> dict[str, Any]:
    """Return the metadata that the steps request; without metadata routing they get X and y alone."""
    if not sklearn.get_config()["enable_metadata_routing"]:
        return {}
    given = {name: value for name, value in metadata.items() if value is not None}
    asked = steps.get_metadata_routing().consumes("fit_transform", given)
    return {name: given[name] for name in asked}
