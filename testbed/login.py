"""The site's login node: sshd that trusts the authority, and what keeps its revocation list."""

import shlex
from pathlib import Path

from headgate.command import run
from testbed.components import Component, Greets, Prints
from testbed.folders import Folder
from testbed.instances import Ports
from testbed.namespace import interpreter
from testbed.slurm import conf_path

FIRST_UID = 20000
LAST_UID = 29999
"""The account_importer's range: only these accounts have a principal."""

KRL_SECONDS = 5.0
"""Between two looks for a new revocation list; a site's timer takes a minute."""
KRL_USER = "headgate-krl"

_KEYGEN_SECONDS = 20.0


def users() -> tuple[str, ...]:
    """The system accounts that this part needs."""
    return ("sshd", KRL_USER)


async def prepare(folder: Folder, ports: Ports, *, realm: str, session: Path) -> Component:
    """Write sshd's configuration and its helpers; `session` is the session program's source.

    Raises:
        CommandError: ssh-keygen failed.
    """
    folder.make("ssh")
    key = folder.path("ssh", "host_key")
    await _keygen("-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f", str(key))
    # An administrator's choice: without any list sshd would let nobody in before the first fetch.
    folder.make("krl", owner=KRL_USER)
    await _keygen("-q", "-k", "-f", str(folder.path("krl", "revoked_keys")))
    port = ports.take("sshd")
    public = key.with_suffix(".pub").read_text(encoding="ascii").split()
    folder.write("ssh/known_hosts", f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
    folder.write("ssh/user_ca.pub", "")
    folder.write("libexec/principals", _principals(realm), mode=0o755)
    folder.write("ssh/sshd_config", _sshd_config(folder, port))
    folder.write("libexec/headgate-session", session.read_bytes(), mode=0o755)
    return Component(
        name="sshd",
        argv=("/usr/sbin/sshd", "-D", "-e", "-f", str(folder.path("ssh", "sshd_config"))),
        ready=Greets(port, "SSH-2.0-"),
    )


def krl_timer(folder: Folder, *, program: Path, tokens: str) -> Component:
    """What keeps the node's revocation list current: `program` as on a node, as its own user.

    A loop stands in for the timer, because no service manager runs here. `tokens` is the URL of the
    translator, whose authorities the node trusts already.
    """
    folder.write("libexec/headgate-krl-fetch", program.read_bytes(), mode=0o755)
    revoked = folder.path("krl", "revoked_keys")
    argv = (str(folder.path("libexec", "headgate-krl-fetch")), "--url", f"{tokens}/v1/krl")
    trusted = ("--user-ca", str(folder.path("ssh", "user_ca.pub")))
    fetch = shlex.join((interpreter(), "-I", *argv, "--file", str(revoked), *trusted))
    # No `exec`, no `&&`: a turn that fails is followed by the next, as a timer does it.
    loop = f"#!/bin/sh\nwhile :; do {fetch}; sleep {KRL_SECONDS:g}; done\n"
    return Component(
        name="krl",
        argv=(str(folder.write("libexec/krl-timer", loop, mode=0o755)),),
        ready=Prints(("cat", f"{revoked}.status"), pattern='.*"result": "confirmed".*'),
        user=KRL_USER,
    )


def session_program(folder: Folder) -> Path:
    """Where the session program is: the force-command of the gateway's certificates."""
    return folder.path("libexec", "headgate-session")


def trust(folder: Folder, authorities: str) -> None:
    """Make these user CA keys (public lines) the ones that sshd accepts from now on."""
    # sshd reads the file anew for each connection; a rename never shows it half a file.
    folder.write("ssh/user_ca.new", authorities)
    folder.path("ssh", "user_ca.new").rename(folder.path("ssh", "user_ca.pub"))


async def _keygen(*arguments: str) -> None:
    (await run(("ssh-keygen", *arguments), timeout=_KEYGEN_SECONDS)).checked()


def _sshd_config(folder: Folder, port: int) -> str:
    ssh = folder.path("ssh")
    return f"""\
ListenAddress 127.0.0.1
Port {port}
HostKey {ssh}/host_key
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile none
TrustedUserCAKeys {ssh}/user_ca.pub
RevokedKeys {folder.path("krl", "revoked_keys")}
AuthorizedPrincipalsCommand {folder.path("libexec", "principals")} %u
AuthorizedPrincipalsCommandUser nobody
SetEnv SLURM_CONF={conf_path(folder)}
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""


def _principals(realm: str) -> str:
    return f"""\
#!/bin/sh
# The one principal whose certificates open this account: only for accounts of the importer's range.
uid=$(id -u -- "$1") || exit 0
[ "$uid" -ge {FIRST_UID} ] && [ "$uid" -le {LAST_UID} ] && printf 'hg:%s:%s\\n' '{realm}' "$1"
exit 0
"""
