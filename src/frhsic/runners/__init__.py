"""One sketch of a table of any size: by this process, by several, or by a Ray cluster."""

from frhsic.runners._engines import Engine as Engine
from frhsic.runners._engines import Local, Pool
from frhsic.runners._ray import Ray
from frhsic.runners._run import RunProgress as RunProgress
from frhsic.runners._run import sketch_source

__all__ = ["Local", "Pool", "Ray", "sketch_source"]
