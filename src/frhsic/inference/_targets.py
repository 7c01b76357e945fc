"""What the curve along S and its GDP estimate, in words."""

from __future__ import annotations

from frhsic.numerics._cells import Cells


def curve_target(cells: Cells) -> str:
    """Return what the means within cells estimate, and under which assumption."""
    if cells.exact:
        return "the true curve, value by value"
    if cells.narrow and len(cells.names) == 1:
        count, share = _ranges(cells, 3)
        return (
            f"the true curve between {count}, with means within the outermost two, if it only rises or only "
            f"falls within any three neighbouring ranges, {share}"
        )
    count, share = _ranges(cells)
    return f"the mean score within {count}, of {share} each"


def gdp_target(cells: Cells) -> str:
    """Return what the GDP of means within cells estimates, and under which assumption."""
    if cells.exact:
        return "the GDP of the true curve"
    if cells.narrow and len(cells.names) == 1:
        return (
            "the GDP of the true curve; the lower end holds for any curve, the upper end if it only rises or "
            f"only falls within any three neighbouring ranges of {cells.names[0]}, {_ranges(cells, 3)[1]}"
        )
    count, share = _ranges(cells)
    return f"the GDP of means within {count}, of {share} each; that of the true curve is at least as large"


def _ranges(cells: Cells, several: int = 1) -> tuple[str, str]:
    """Return how many ranges there are, beside single values, and the share of rows in some of them."""
    wide = cells.mass[~cells.single]
    single = cells.size - len(wide)
    name = " and ".join(cells.names)
    count = f"{len(wide)} range{'' if len(wide) == 1 else 's'} of {name}"
    if single:
        count += f" (and at {single} single value{'' if single == 1 else 's'})"
    share = 100.0 * min(1.0, several * float(wide.median()))
    return count, f"about {share:.2g} % of the rows"
