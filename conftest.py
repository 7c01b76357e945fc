"""Settings that all tests share."""

import os

import pytest

pytest_plugins = ["tests.durations"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the examples in the docstrings of the fetchers where the real data are absent."""
    if "FRHSIC_DATA_HOME" not in os.environ:
        for item in items:
            if isinstance(item, pytest.DoctestItem) and ".fetch_" in item.name:
                item.add_marker(pytest.mark.skip(reason="needs the real data: set FRHSIC_DATA_HOME"))
