"""A QR code as lines of half blocks: a telephone opens the address that a terminal shows."""

import segno

QUIET_ZONE = 2
_BLOCKS = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}


def lines(text: str) -> list[str]:
    """The code (ISO/IEC 18004), two rows of modules a line, dark modules drawn, for light paper."""
    code = segno.make_qr(text, error="L", boost_error=False)
    rows = [[int(bool(module)) for module in row] for row in code.matrix_iter(border=QUIET_ZONE)]
    if len(rows) % 2:
        rows.append([0] * len(rows[0]))
    return [
        "".join(_BLOCKS[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]
