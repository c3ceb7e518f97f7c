"""Amounts with a unit: memory and counts, as Slurm abbreviates them (powers of 1024)."""

import re
from decimal import Decimal

_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5, "E": 1024**6}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)(?:i?B)?", re.ASCII | re.IGNORECASE)

COUNT = re.compile(r"\d+[KMGTPE]?", re.ASCII | re.IGNORECASE)
"""A whole count; `1g.5gb` and `2080ti` are none, but types of GPU."""


def amount(text: str) -> int:
    """A count that may carry K, M, G, …; fractions (`1.50G`) are rounded.

    Raises:
        ValueError: not an amount.
    """
    number, unit = _split(text)
    return round(number * _FACTORS[unit])


def bytes_of(text: str) -> int:
    """An amount of memory in bytes; without a unit Slurm means MiB.

    Raises:
        ValueError: not an amount.
    """
    number, unit = _split(text)
    return round(number * _FACTORS[unit or "M"])


def mebibytes(text: str) -> int:
    """An amount of memory in MiB, rounded; without a unit Slurm means MiB.

    Raises:
        ValueError: not an amount.
    """
    number, unit = _split(text)
    return round(number * _FACTORS[unit or "M"] / _FACTORS["M"])


def _split(text: str) -> tuple[Decimal, str]:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not an amount: {text!r}")
    return Decimal(found[1]), found[2].upper()
