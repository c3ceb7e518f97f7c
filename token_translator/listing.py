"""Lists at a terminal: columns under headings."""

from collections.abc import Iterator, Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a list, its headings first; none where there are no rows.

    What others wrote acts on no terminal.
    """
    if not rows:
        return
    shown = [headings, *([harmless(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in shown) for at in range(len(headings))]
    for row in shown:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def harmless(words: str) -> str:
    """The words, with what a terminal would act on written as escapes."""
    return words if words.isprintable() else words.encode("unicode_escape").decode()
