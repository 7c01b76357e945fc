"""Tables of cases that cover options without their Cartesian product."""

from collections.abc import Iterable, Iterator
from itertools import cycle, product
from typing import Any


def cover(names: Iterable[str], *options: tuple[Any, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield each name twice, with a choice of all options and with the opposite choice.

    So each name meets each value of each option, and over the names, if they are enough, every combination of
    options occurs: half as many names as there are combinations.
    """
    choices = list(product(*options))
    half = len(choices) // 2
    for name, place in zip(names, cycle(range(half)), strict=False):
        yield name, *choices[place]
        yield name, *choices[-1 - place]
