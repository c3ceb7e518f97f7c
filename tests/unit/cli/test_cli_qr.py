"""A QR code in half blocks holds the address it was made of."""

import segno

from headgate.cli import qr

PAGE = "https://iam.example.org/device?user_code=BCDF-GHJK"
UPPER, LOWER = "▀█", "▄█"


def test_the_lines_are_the_codes_own_modules():
    """Two rows of modules a line, with a quiet zone; narrow enough for a terminal."""
    lines = qr.lines(PAGE)
    rows = [[c in half for c in line] for line in lines for half in (UPPER, LOWER)]
    code = segno.make_qr(PAGE, error="L", boost_error=False)
    expected = [[bool(m) for m in row] for row in code.matrix_iter(border=qr.QUIET_ZONE)]
    assert rows[: len(expected)] == expected
    assert not any(any(row) for row in rows[len(expected) :])
    assert len(lines[0]) <= 60
    assert len(lines) <= 24
