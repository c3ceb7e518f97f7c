"""Jobs as people name them: by the beginning of their id."""

import re

from headgate.cli.failures import CommandFailure
from headgate.client import Client

PREFIX_SEARCH = 500
"""How many of the newest jobs a short id is looked for in."""


async def job_id(client: Client, text: str) -> str:
    """The full id of a job of the caller's from what a person typed: the id, or its beginning.

    Raises:
        CommandFailure: no job, or several, begin like that.
    """
    wish = text.strip().lower()
    if not re.fullmatch(r"[0-9a-f-]{4,35}", wish):
        if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
            return text
        raise CommandFailure(f"{text!r} is no job id.", code="not_found")
    found: list[str] = []
    seen = 0
    async for job in client.jobs():
        seen += 1
        if job.id.startswith(wish):
            found.append(job.id)
        if seen >= PREFIX_SEARCH:
            break
    if not found:
        raise CommandFailure(
            f"No job of yours begins with {wish}.",
            advice="Run: headgate job list",
            code="not_found",
        )
    if len(found) > 1:
        raise CommandFailure(
            f"Several jobs begin with {wish}: {', '.join(found[:4])}.",
            advice="Give more of the id.",
            code="ambiguous",
        )
    return found[0]
