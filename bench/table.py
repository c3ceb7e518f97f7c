"""What a benchmark says: one row of the table, a ratio to a floor taken in the same run."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

ROUNDS = 5
"""Each figure is the median of so many rounds; floor and ours take turns."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was measured.

    `ratios` are ours to the floor, one of each round; `budget` what they may be at most (or, where
    `at_least`, at least), None where the design names none. `words` are the figures themselves.
    """

    what: str
    floor: str
    ratios: Sequence[float]
    budget: float | None
    words: str
    at_least: bool = False

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)

    @property
    def kept(self) -> bool:
        """Whether the budget is kept; without one it is."""
        if self.budget is None:
            return True
        return self.ratio >= self.budget if self.at_least else self.ratio <= self.budget


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, as the documentation has it."""
    head = "| what | floor | ratio (spread) | budget | figures |\n|---|---|---|---|---|"
    return "\n".join([head, *(_line(row) for row in rows)])


def _line(row: Row) -> str:
    spread = f"{min(row.ratios):.2f}-{max(row.ratios):.2f}"
    ratio = f"{row.ratio:.2f} ({spread})" if row.ratios and not math.isnan(row.ratio) else "-"
    sign, missed = "≥" if row.at_least else "≤", "" if row.kept else " (missed)"
    budget = "-" if row.budget is None else f"{sign} {row.budget:g}{missed}"
    return f"| {row.what} | {row.floor} | {ratio} | {budget} | {row.words} |"


def milliseconds(seconds: Sequence[float]) -> str:
    """The median of some times, in words."""
    return f"{statistics.median(seconds) * 1000:.2f} ms"
