"""What a person sees: jobs, identities and failures, coloured on a terminal, plain elsewhere."""

import sys
from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli import describe, failures
from headgate.cli.failures import CommandFailure
from headgate.cli.wording import harmless, in_json, moment, plain
from headgate.client import HeadgateError, Job, Me, ProblemError
from headgate.clock import Clock

SHORT_ID = 8
NAME_WIDTH = 24
PLAIN_WIDTH = 10_000
"""Where no terminal sets a width, nothing is wrapped or cut."""


class Screen:
    """Standard output for results, standard error for everything said about them.

    All that is not a job's own output goes through here without what a terminal would act on: text
    of services is text.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def json(self, value: object) -> None:
        """One JSON document on one line of standard output."""
        self.output(in_json(msgspec.json.encode(value)) + b"\n")

    def output(self, chunk: bytes) -> None:
        """A piece of a job's own output, untouched."""
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()

    def complaint(self, chunk: bytes) -> None:
        """A piece of what a job wrote to standard error, untouched, to ours."""
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()

    def note(self, *parts: str | Text | tuple[str, str]) -> None:
        """A sentence about what happens, on standard error."""
        self.err.print(_plain(Text.assemble(*parts)), soft_wrap=not self.err.is_terminal)

    def line(self, text: str) -> None:
        """A result that is one word or line of text, on standard output."""
        self.out.print(Text(harmless(text)), soft_wrap=True)

    def address(self, url: str) -> None:
        """An address on standard error, never broken by a line end, so that it can be clicked."""
        self.err.print(Text(f"  {harmless(url)}", style="bold cyan"), soft_wrap=True)

    def qr(self, url: str) -> None:
        """An address as a QR code on standard error, on a terminal that can show one whole."""
        if not self.err.is_terminal or not self.err.encoding.startswith("utf"):
            return
        from headgate.cli import qr  # noqa: PLC0415 - its library is slow to load, and rarely needed

        code = qr.lines(url)
        if len(code[0]) > self.err.width or len(code) > self.err.height:
            return
        for line in code:
            # Dark on light whatever the terminal's colours are: telephones want it so.
            self.err.print(Text(line, style="#000000 on #ffffff"), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows under headings, nothing cut."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, no_wrap=True)
        for row in rows:
            table.add_row(*(harmless(cell) for cell in row))
        self.out.print(table, soft_wrap=True)

    def jobs(self, jobs: Sequence[Job]) -> None:
        """A table of jobs; on a terminal with short ids, which every command takes."""
        if not jobs:
            self.note("No jobs.")
            return
        now = self._clock.now()
        table = Table(box=None, pad_edge=False, header_style="bold")
        clusters = len({job.cluster for job in jobs}) > 1
        table.add_column("ID", no_wrap=True)
        width = NAME_WIDTH if self.out.is_terminal else None
        table.add_column("NAME", no_wrap=True, overflow="ellipsis", max_width=width)
        table.add_column("STATE", no_wrap=True)
        if clusters:
            table.add_column("CLUSTER", no_wrap=True)
        table.add_column("QUEUE", no_wrap=True)
        table.add_column("CREATED", no_wrap=True)
        table.add_column("RAN", no_wrap=True, justify="right")
        table.add_column("EXIT", no_wrap=True, justify="right")
        for job in jobs:
            table.add_row(
                harmless(job.id[:SHORT_ID] if self.out.is_terminal else job.id),
                harmless(job.name or "-"),
                describe.state(job),
                *([harmless(job.cluster or "-")] if clusters else []),
                harmless(describe.queue(job) or "-"),
                moment(job.created_at, now),
                describe.ran(job, now) or "-",
                "-" if job.exit_code is None else str(job.exit_code),
            )
        self.out.print(table)

    def job(self, job: Job) -> None:
        """One job with all that is known about it."""
        self.fields(describe.fields(job, self._clock.now()))

    def me(self, me: Me, *, site: str, token: str, certificate: str = "") -> None:
        """Who the caller is here, and what about an account and a certificate."""
        self.fields(
            {
                "subject": me.sub,
                "issuer": me.iss,
                "groups": ", ".join(me.groups),
                "site": site,
                "token": token,
                "account": describe.account(me),
                "certificate": certificate,
            }
        )
        if me.state == "pending":
            since = moment(me.requested_at, self._clock.now()) if me.requested_at else ""
            self.note(f"Your account is on its way{f'; requested {since}' if since else ''}.")
            if me.waiting_for:
                self.note(f"It waits for: {harmless(me.waiting_for)}")
        elif me.state == "blocked":
            why = f": {harmless(me.reason)}" if me.reason else "."
            self.note(f"Your account is blocked{why}")
        if me.how_to_ask:
            self.note(harmless(me.how_to_ask))

    def fields(self, fields: Mapping[str, str | Text | None]) -> None:
        """Names and values in two columns; values wrap within theirs, empty ones are left out."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="bright_black", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in fields.items():
            if value:
                grid.add_row(name, _plain(value) if isinstance(value, Text) else harmless(value))
        self.out.print(grid)

    def failure(
        self, error: HeadgateError | CommandFailure, *, as_json: bool, advice: str = ""
    ) -> None:
        """A failure: what, where in the request, what to do next, whom to ask."""
        if as_json:
            document = in_json(msgspec.json.encode(failures.document(error)))
            sys.stderr.buffer.write(document + b"\n")
            return
        self.note(("Error: ", "bold red"), harmless(describe.headline(error)))
        if isinstance(error, ProblemError):
            self._problem(error)
        for line in dict.fromkeys([getattr(error, "advice", ""), advice]):
            if line:
                self.note(harmless(line))

    def failure_line(self, error: HeadgateError | CommandFailure, *, advice: str = "") -> None:
        """A failure on one line, where ssh asked: what, and what to do next."""
        words = [str(error), *_whom_to_ask(error), getattr(error, "advice", ""), advice]
        line = " ".join(word for word in dict.fromkeys(words) if word)
        self.note(("Error: ", "bold red"), harmless(" ".join(line.split())))

    def _problem(self, error: ProblemError) -> None:
        problem = error.problem
        for fault in problem.errors:
            place = describe.option_of(fault.pointer)
            self.note("  ", (harmless(place), "bold"), ": ", harmless(fault.detail))
        for words in _whom_to_ask(error):
            self.note(harmless(words))
        if problem.request_id and not problem.errors:
            self.note((f"Request {harmless(problem.request_id)}", "bright_black"))


def _plain(text: Text) -> Text:
    """Styled text without what a terminal would act on; its own styles stay where they are."""
    cleaned = text.copy()
    cleaned.plain = plain(text.plain)
    return cleaned


def _whom_to_ask(error: Exception) -> list[str]:
    if not isinstance(error, ProblemError):
        return []
    said = [error.problem.members.get(member) for member in ("waiting_for", "how_to_ask")]
    detail = error.problem.detail
    return [words for words in said if isinstance(words, str) and words not in detail]


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console
