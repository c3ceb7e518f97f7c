"""The verb `headgate token`: an access token on standard output, for programs that want one."""

from datetime import UTC, datetime

import click

from headgate.cli import claims
from headgate.cli.failures import CommandFailure
from headgate.cli.invocation import Invocation, invocation

_LATEST = 253402300799
"""The last second of the year 9999, since the epoch."""


@click.command()
@click.option("--audience", default="", metavar="NAME", help="Another service of the site's.")
@invocation()
def token(run: Invocation, *, audience: str) -> None:
    """Print an access token for the site's gateway, or with --audience for a service of the site.

    Whoever has it is you, until it ends: keep it out of arguments, files and logs. With curl:
    curl -H @<(printf 'Authorization: Bearer %s' "$(headgate token)") URL

    With --json: {"access_token", "audiences", "expires_at"}; what the token does not say is empty.
    """
    found = run.run(_token(run, audience))
    if run.as_json:
        document = {
            "access_token": found,
            "audiences": claims.audiences(found),
            "expires_at": _end(found),
        }
        run.screen.json(document)
        return
    if run.screen.out.is_terminal:
        run.screen.note(("Whoever reads this is you until it ends.", "yellow"))
    run.screen.line(found)


async def _token(run: Invocation, audience: str) -> str:
    found = await run.token(audience)
    audiences = claims.audiences(found)
    if audience and audiences and audience not in audiences:
        raise CommandFailure(
            f"There is no token for {audience}: the one from {run.token_label} is for "
            f"{', '.join(audiences)}.",
            advice="The issuer may not exchange tokens for this client.",
            code="no_such_audience",
        )
    return found


def _end(found: str) -> datetime | None:
    expiry = claims.of(found).get("exp")
    if not isinstance(expiry, int | float) or not 0 < expiry < _LATEST:
        return None
    return datetime.fromtimestamp(expiry, UTC)
