"""The composition root of the `headgate` command."""

import io
import os
import sys

import click
import msgspec

from headgate import __version__
from headgate.cli import access, exits
from headgate.cli.invocation import Workplace
from headgate.cli.jobs import job
from headgate.cli.places import Places
from headgate.cli.screen import Screen
from headgate.clock import SystemClock

EPILOG = """\b
A token is taken from the first of: --token-file, $HEADGATE_TOKEN, the login
made with `headgate login`, $ACCESS_TOKEN, $OIDC_ACCESS_TOKEN,
$OS_ACCESS_TOKEN, $BEARER_TOKEN, $OIDC, $WATTS_TOKEN, $WATTSON_TOKEN, the
file $BEARER_TOKEN_FILE.

\b
The site is --site, else $HEADGATE_SITE, else the one logged in to last.

\b
Exit status: 0 done; 1 refused or failed, standard error says why; 2 usage;
130 interrupted. `job submit --wait` ends with the job's own, see its help.

\b
With --json a result is one JSON document on standard output, and a failure
one problem document (RFC 9457: detail, code, errors) on standard error.
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headgate")
def headgate() -> None:
    """Run container jobs on a batch cluster with an OpenID Connect token."""


headgate.add_command(access.login)
headgate.add_command(access.logout)
headgate.add_command(access.whoami)
headgate.add_command(job)


def main() -> None:
    """Run the command; every failure is a sentence and an exit status, never a traceback."""
    # aiohttp takes proxies and .netrc as one: its passwords have no place beside our token.
    os.environ["NETRC"] = os.devnull
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows less than Unicode
    clock = SystemClock()
    places = Places.of_environment(os.environ)
    workplace = Workplace(places=places, clock=clock, screen=Screen(clock))
    sys.exit(run(sys.argv[1:], workplace))


def run(arguments: list[str], workplace: Workplace) -> int:
    """Run one command line; its exit status."""
    try:
        status = headgate.main(
            arguments, prog_name="headgate", standalone_mode=False, obj=workplace
        )
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        _misused(error, as_json="--json" in _own(arguments))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        workplace.screen.note("Interrupted.")
        return exits.INTERRUPTED
    return status if isinstance(status, int) else 0


def _own(arguments: list[str]) -> list[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _misused(error: click.ClickException, *, as_json: bool) -> None:
    if not as_json:
        error.show()
        return
    document = {
        "type": "about:blank",
        "title": "Usage",
        "detail": error.format_message(),
        "code": "usage",
    }
    sys.stderr.write(msgspec.json.encode(document).decode() + "\n")


if __name__ == "__main__":
    main()
