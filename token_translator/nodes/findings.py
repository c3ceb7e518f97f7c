"""What a look at a node found: one line for each thing that has to be so."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

EX_OK, EX_FAILED, EX_INCOMPLETE = 0, 1, 3


class State(StrEnum):
    """How one thing is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: its name, how it is, and why or what to do."""

    check: str
    state: State
    detail: str = ""


def ok(check: str, detail: str = "") -> Finding:
    """It is as it has to be."""
    return Finding(check, State.OK, detail)


def failed(check: str, detail: str) -> Finding:
    """It is not, and certificates open too much, or nothing."""
    return Finding(check, State.FAILED, detail)


def warning(check: str, detail: str) -> Finding:
    """It works, and somebody should know."""
    return Finding(check, State.WARNING, detail)


def skipped(check: str, detail: str) -> Finding:
    """It could not be looked at."""
    return Finding(check, State.SKIPPED, detail)


def status(findings: Sequence[Finding]) -> int:
    """The command's exit status: 0 proven, 1 something failed, 3 something was not looked at."""
    states = {finding.state for finding in findings}
    if State.FAILED in states:
        return EX_FAILED
    return EX_INCOMPLETE if State.SKIPPED in states else EX_OK


def render(findings: Sequence[Finding], *, as_json: bool) -> str:
    """For a terminal, or as one JSON object."""
    if as_json:
        return msgspec.json.encode({"status": status(findings), "findings": findings}).decode()
    width = max((len(finding.check) for finding in findings), default=0)
    return "\n".join(
        f"{finding.state:<7}  {finding.check:<{width}}  {finding.detail}".rstrip()
        for finding in findings
    )
