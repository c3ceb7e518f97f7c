"""Patterns in the names of output files: `%j`, `%x`, `%%` (sbatch(1), filename pattern)."""

import re
from collections.abc import Mapping

_PATTERN = re.compile(r"%(\d*)([A-Za-z%])")


def expand_pattern(path: str, values: Mapping[str, str | int]) -> str:
    """A path with its patterns replaced; a backslash anywhere switches them off, as in Slurm.

    A number after the `%` pads with zeros. A letter that has no value stays as it is written.
    """
    if "\\" in path:
        return path.replace("\\", "")

    def fill(found: re.Match[str]) -> str:
        width, letter = found.groups()
        if letter == "%":
            return "%"
        return str(values[letter]).zfill(int(width or 0)) if letter in values else found[0]

    return _PATTERN.sub(fill, path)
