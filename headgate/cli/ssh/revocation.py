"""Whether the site has revoked the certificate that is kept: its public list says so."""

from headgate.cli import private_files
from headgate.cli.failures import CommandFailure
from headgate.cli.invocation import Invocation
from headgate.cli.ssh import files
from headgate.cli.ssh.identity import About, Identity
from headgate.client import HeadgateError, RetryPolicy
from headgate.command import CommandError
from headgate.command import run as run_command

QUICK_ANSWER = RetryPolicy(deadline=3.0, attempt=3.0)
"""Somebody's ssh waits, and can go on without the answer."""
PERSON_SECONDS = 10.0
"""How long an answer is good for where a person runs our command; ssh's own questions: a minute."""
CHECK_SECONDS = 5.0
_REVOKED = 1


async def revoked(run: Invocation, identity: Identity, about: About) -> bool:
    """Whether the certificate is on the site's list, as far as that can be had now.

    The list travels only when it changed. Where there is none, or no answer, the certificate
    counts: sshd has the last word, and the question is not repeated at once.
    """
    age = files.ASK_SECONDS if run.quiet else PERSON_SECONDS
    if files.asked(str(identity.directory), run.clock.now().timestamp(), age):
        return False
    known = private_files.read(identity.path(files.ASKED)) or b""
    try:
        async with run.anybodys_translator(about.site, QUICK_ANSWER) as translator:
            found = await translator.revocation_list(known.decode(errors="replace"))
    except (HeadgateError, CommandFailure):
        found = None  # as before: who is asked next says what is wrong
    if found is not None:
        if await _on(identity, found.content):
            return True
        known = found.etag.encode()
    private_files.write(identity.path(files.ASKED), known)
    return False


async def _on(identity: Identity, content: bytes) -> bool:
    """Ask OpenSSH whether a list names the certificate, its key or its authority."""
    path = identity.path("revoked_keys")
    private_files.write(path, content)
    try:
        certificate = str(identity.path(files.CERTIFICATE))
        argv = ("ssh-keygen", "-Q", "-f", str(path), certificate)
        done = await run_command(argv, timeout=CHECK_SECONDS)
    except CommandError:
        return False  # no OpenSSH, no login that this could hinder
    finally:
        private_files.remove(path)
    return done.status == _REVOKED
