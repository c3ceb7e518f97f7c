"""`make bench`: every benchmark on the real site, one table; 1 where a budget is missed."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from bench import certificates, revocations, transfers
from bench.table import Row, table
from headgate import logs
from testbed.launch import site
from testbed.site import Site

BENCHMARKS: Mapping[str, Callable[[Site, Path], Awaitable[list[Row]]]] = {
    "certificates": certificates.rows,
    "revocations": revocations.rows,
    "transfers": transfers.rows,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    names = parser.parse_args(argv).names
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"there is no benchmark {min(unknown)}")
    logs.configure("warning")
    rows = asyncio.run(_measure(names or list(BENCHMARKS)))
    print(table(rows))  # noqa: T201 - the answer
    return 0 if all(row.kept for row in rows) else 1


async def _measure(names: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    async with site() as running:
        await running.import_accounts()
        with tempfile.TemporaryDirectory(dir=running.addresses.state) as folder:
            for name in names:
                print(f"measuring: {name} …", file=sys.stderr, flush=True)  # noqa: T201 - patience
                rows += await BENCHMARKS[name](running, Path(folder))
    return rows


if __name__ == "__main__":
    sys.exit(main())
