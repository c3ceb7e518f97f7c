"""The verb `headgate delegations`: what the site may do for a person without a token."""

from collections.abc import Sequence

import click

from headgate.cli.failures import CommandFailure
from headgate.cli.invocation import Invocation, invocation
from headgate.cli.wording import count, moment
from headgate.client import Delegation, NotFoundError


@click.command()
@click.argument("verb", type=click.Choice(["list", "end"]), default="list")
@click.argument("row", required=False, metavar="[ROW]")
@invocation()
def delegations(run: Invocation, *, verb: str, row: str | None) -> None:
    """List what services may still do for you without a token, or end one of it.

    A submitted job is such a delegation: for its own script alone, and for a time. To end it does
    not end the job, but the site can then neither start nor follow it.

    With --json: {"delegations": [...]}, or {"ended": ROW}.
    """
    if verb == "end":
        if not row:
            raise click.UsageError("Say which: headgate delegations end ROW")
        ended = run.run(_end(run, row))
        if run.as_json:
            run.screen.json({"ended": ended})
        else:
            run.screen.note(f"{ended} is ended.")
        return
    if row:
        raise click.UsageError("list takes no row.")
    found = run.run(_list(run))
    if run.as_json:
        run.screen.json({"delegations": found})
    elif not found:
        run.screen.note("No delegations.")
    else:
        _show(run, found)


async def _list(run: Invocation) -> Sequence[Delegation]:
    async with run.translator() as (translator, _):
        return await translator.delegations()


async def _end(run: Invocation, row: str) -> str:
    """End the one that begins like that; its whole row."""
    async with run.translator() as (translator, _):
        wish = row.strip().lower()
        found = [d.row for d in await translator.delegations() if d.row.startswith(wish)]
        if len(found) > 1 and wish not in found:
            raise CommandFailure(
                f"Several delegations begin with {wish}: {', '.join(found[:4])}.",
                advice="Give more of the row.",
                code="ambiguous",
            )
        if not found:
            raise CommandFailure(
                f"No delegation of yours begins with {wish}.",
                advice="Run: headgate delegations",
                code="not_found",
            )
        whole = wish if wish in found else found[0]
        try:
            await translator.end_delegation(whole)
        except NotFoundError as error:
            raise CommandFailure(f"{whole} is gone already.", code="not_found") from error
        return whole


def _show(run: Invocation, found: Sequence[Delegation]) -> None:
    now = run.clock.now()
    rows = [
        (
            delegation.row,
            delegation.service,
            delegation.state,
            moment(delegation.sealed_at, now),
            moment(delegation.expires_at, now),
            count(len(delegation.certificates), "certificate") if delegation.certificates else "-",
        )
        for delegation in found
    ]
    run.screen.table(("ROW", "SERVICE", "STATE", "SINCE", "UNTIL", "LIVE"), rows)
