"""What a person at a terminal reads: plans, the registry, and what was done."""

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TextIO

from account_importer.directory import Entry, Person
from account_importer.importer import Applied, Planned
from account_importer.store import LastPull, PlanState
from headgate.clock import rfc3339


def say(text: str, stream: TextIO | None = None) -> None:
    """Print for a person, at once: the process may end without flushing."""
    (stream or sys.stdout).write(text + "\n")
    (stream or sys.stdout).flush()


def printable(text: str) -> str:
    """Text from outside without what could steer a terminal."""
    return "".join("?" if unicodedata.category(c).startswith("C") else c for c in text)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns, aligned."""
    lines = [list(head), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def planned(found: Planned) -> str:
    """A plan as `plan` prints it."""
    blocks: list[str] = []
    if found.plan.changes:
        rows = [
            (c.kind, c.account, c.uid, c.shell, c.user_name, ",".join(c.groups), c.sub, c.reason)
            for c in found.plan.changes
        ]
        head = ("CHANGE", "ACCOUNT", "UID", "SHELL", "USER", "GROUPS", "SUBJECT", "REASON")
        digest = found.plan.digest
        by = f" by {printable(found.approved_by)}" if found.approved_by else ""
        blocks += [table(head, rows), f"plan {digest}: {found.state.value}{by}"]
        if found.state is PlanState.PROPOSED:
            blocks.append(f"approve it with: headgate-accounts approve {digest[:12]} --by NAME")
    else:
        blocks.append("nothing to change")
    if found.refusals:
        refused = [(r.user_name, r.identity.sub, r.reason) for r in found.refusals]
        blocks.append(table(("REFUSED", "SUBJECT", "REASON"), refused))
    return "\n\n".join(blocks)


def registry(entries: Iterable[Entry], people: Iterable[Person], pull: LastPull | None) -> str:
    """The registry as `show` prints it."""
    rows = [
        (e.account, e.uid, e.state.value, e.reason, e.version, e.identity.sub, e.identity.iss)
        for e in sorted(entries, key=lambda entry: entry.uid)
    ]
    head = ("ACCOUNT", "UID", "STATE", "REASON", "VERSION", "SUBJECT", "ISSUER")
    blocks = [table(head, rows) if rows else "the registry is empty"]
    refused = [(p.user_name, p.identity.sub, p.refusal) for p in people if p.refusal]
    if refused:
        blocks.append(table(("REFUSED", "SUBJECT", "REASON"), refused))
    if pull is not None:
        words = f"{pull.seen} users, {pull.denied} blocked" if pull.outcome == "ok" else pull.detail
        blocks.append(f"last pull {rfc3339(pull.at)}: {pull.outcome}: {printable(words)}")
    return "\n\n".join(blocks)


def applied(results: Sequence[Applied]) -> str:
    """What `apply` prints."""
    if not results:
        return "nothing is approved"
    lines: list[str] = []
    for result in results:
        lines.append(f"plan {result.digest[:12]}: {result.state.value}, {result.made} changes made")
        lines += [f"  {printable(problem)}" for problem in result.problems]
    return "\n".join(lines)
