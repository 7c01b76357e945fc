"""One sketch of a table of any size: by this process, by several, or by a Ray cluster."""

from frhsic.runners._engines import Engine, Local, Pool, Ray
from frhsic.runners._run import Progress, sketch_source

__all__ = ["Engine", "Local", "Pool", "Progress", "Ray", "sketch_source"]
