"""An engine of tasks of a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from frhsic._checks import ArgumentError
from frhsic.runners._engines import DEATHS, PATIENCE, Engine, Part
from frhsic.runners._work import Job, Unit, lost_error


@dataclass(frozen=True)
class Ray(Engine):
    """Tasks of a Ray cluster, of one core each. Lost tasks are repeated on another worker or node.

    Files must be where all nodes find them. Needs ``pip install 'frhsic[ray]'``.

    Parameters
    ----------
    address : str, optional
        Of a running cluster, "auto" for the one of this machine. By default the cluster to which this process
        is connected, else RAY_ADDRESS, else a new one on this machine, which ends with the work.

    Examples
    --------
    >>> Ray("auto")
    Ray(address='auto')
    """

    address: str | None = None

    def run(self, job: Job, units: Sequence[tuple[int, Unit]]) -> Iterator[Part]:
        try:
            import ray
        except ImportError as error:
            raise ImportError("A Ray cluster needs Ray. Install it: pip install 'frhsic[ray]'") from error
        connected = ray.is_initialized()
        if connected and self.address is not None:
            must = "be None where this process is connected to Ray already"
            fix = "Leave it out, or call ray.shutdown() first."
            raise ArgumentError("address", must, repr(self.address), fix)
        if not connected:
            _connect(ray, self.address)
        waiting: dict[Any, tuple[int, Unit]] = {}
        try:
            task = ray.remote(num_cpus=1, max_retries=DEATHS)(sketch_unit)
            shared = ray.put(job)
            waiting = {task.remote(shared, unit): (place, unit) for place, unit in units}
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                place, unit = waiting.pop(done)
                try:
                    found = ray.get(done)
                except ray.exceptions.RayError as error:
                    got = f"{type(error).__name__} from Ray after {DEATHS} more tries"
                    raise lost_error(unit, got) from None
                if isinstance(found, Exception):
                    raise found
                yield Part(place, *found)
        finally:
            for one in waiting:
                ray.cancel(one, force=True)
            if not connected:
                ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    # By default Ray would look for the last cluster of this machine, for minutes if that is gone.
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    host, _, port = where.removeprefix("ray://").rpartition(":")
    more = {"include_dashboard": False} if where == "local" else {}
    try:
        if host and port.isdigit():
            socket.create_connection((host, int(port)), PATIENCE).close()
        ray.init(where, log_to_driver=False, logging_level=logging.ERROR, **more)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConnectionError(
            f"'address' must lead to a Ray cluster that runs. Got {where!r}: "
            f"{(str(error).splitlines() or [''])[0][:200]}. Start one by 'ray start --head', or leave it out."
        ) from None


def sketch_unit(job: Job, unit: Unit) -> tuple[int, bytes | None] | Exception:
    """Sketch a unit in a process of Ray, which shows the name of this function."""
    torch.set_num_threads(1)
    *_, last = job.messages(unit)
    return last
