"""Tables as Markdown."""

import statistics
from collections.abc import Sequence

# As headings call the datasets.
TITLES = {
    "adult": "Adult",
    "acs_income": "ACS Income",
    "meps": "MEPS",
    "compas": "COMPAS",
    "crime-householdsize": "Crime (household size)",
    "crime": "Crime (racial composition)",
}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Return a table; the columns ``left`` are aligned to the left, the others to the right."""
    rule = [":---" if column in left else "---:" for column in range(len(header))]
    return "".join("| " + " | ".join(line) + " |\n" for line in (header, rule, *rows))


def plus_minus(values: Sequence[float], digits: int, *, factor: float = 1.0) -> str:
    """Return mean and deviation (of a population, as published); a dash for no values."""
    if not values:
        return "–"
    mean, sd = factor * statistics.mean(values), factor * statistics.pstdev(values)
    return f"{mean:.{digits}f} ± {sd:.{digits}f}"
