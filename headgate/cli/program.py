"""The commands of `headgate`, put together and run."""

import io
import os
import sys
from collections.abc import MutableMapping, Sequence

import click
import msgspec

from headgate import __version__
from headgate.cli import access, exits
from headgate.cli.delegations import delegations
from headgate.cli.jobs import job
from headgate.cli.places import Places
from headgate.cli.print_token import token
from headgate.cli.screen import Screen
from headgate.cli.services import Workplace
from headgate.cli.ssh.commands import ssh, ssh_config, ssh_renew
from headgate.clock import SystemClock

EPILOG = """\b
A token is taken from the first of: --token-file, $HEADGATE_TOKEN, the login
made with `headgate login`, $ACCESS_TOKEN, $OIDC_ACCESS_TOKEN,
$OS_ACCESS_TOKEN, $BEARER_TOKEN, $OIDC, $WATTS_TOKEN, $WATTSON_TOKEN, the
file $BEARER_TOKEN_FILE, oidc-agent at $OIDC_SOCK (its account
$OIDC_AGENT_ACCOUNT, else one of the site's issuer), the files
$XDG_RUNTIME_DIR/bt_u<uid> and /tmp/bt_u<uid>.

\b
The site is --site, else $HEADGATE_SITE, else the one logged in to last. It
speaks for its own host and what is below it; other names are accepted with
`headgate login --accept`, or where nobody logs in with $HEADGATE_ACCEPT.

\b
Exit status: 0 done; 1 refused or failed, standard error says why; 2 usage;
130 interrupted. `job submit --wait` ends with the job's own, see its help,
and `ssh` with that of the remote command.

\b
With --json a result is one JSON document on standard output, and a failure
one problem document (RFC 9457: detail, code, errors) on standard error.
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headgate")
def headgate() -> None:
    """Use a batch cluster with an OpenID Connect token: log in with SSH, run container jobs."""


for _command in (access.login, access.logout, access.whoami, job, ssh, ssh_config, ssh_renew):
    headgate.add_command(_command)
for _command in (delegations, token):
    headgate.add_command(_command)


def start(arguments: Sequence[str], environ: MutableMapping[str, str]) -> int:
    """Run one command line in this process's environment; its exit status."""
    # aiohttp takes proxies and .netrc as one: its passwords have no place beside our token.
    environ["NETRC"] = os.devnull
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows less than Unicode
    clock = SystemClock()
    places = Places.of_environment(environ)
    return run(list(arguments), Workplace(places=places, clock=clock, screen=Screen(clock)))


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
