"""What sshd would do with a connection, asked of sshd itself (`sshd -T -C …`), and judged."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from headgate.command import CommandError, run
from token_translator.nodes.findings import Finding, failed, ok, warning
from token_translator.nodes.settings import Node

SECONDS = 20.0
LIMIT = 1024 * 1024

OBEYED = (
    "BASH_ENV",
    "BASH_FUNC_x%%",
    "ENV",
    "GCONV_PATH",
    "HOME",
    "IFS",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PATH",
    "PS4",
    "PYTHONPATH",
    "SHELLOPTS",
    "SLURM_CONF",
    "ZDOTDIR",
)
"""Variables that would let a client choose what a shell, the loader or Slurm's commands run."""

CERTIFICATES = "ssh-ed25519-cert-v01@openssh.com"

Effective = Mapping[str, tuple[str, ...]]


async def effective(
    user: str, address: str, *, sshd: str = "/usr/sbin/sshd", config: str = ""
) -> Effective:
    """What sshd's files say of a connection: keywords in small letters, each with its values.

    Raises:
        CommandError: sshd does not take its files; with its words.
    """
    connection = f"user={user},host={address},addr={address},laddr={address},lport=22"
    file = ("-f", config) if config else ()
    done = await run((sshd, "-T", *file, "-C", connection), timeout=SECONDS, limit=LIMIT)
    found: dict[str, tuple[str, ...]] = {}
    for line in done.checked().stdout.decode(errors="replace").splitlines():
        keyword, _, value = line.partition(" ")
        found[keyword.lower()] = (*found.get(keyword.lower(), ()), value)
    return found


async def judged(
    node: Node, account: str, *, sshd: str = "/usr/sbin/sshd", config: str = ""
) -> list[Finding]:
    """Sshd's answers for an account of the range and for root, from everywhere, judged."""
    places = {"elsewhere": "192.0.2.1"}
    places |= {f"a gateway, {place}": _address(place) for place in node.gateways}
    places |= {f"a front door, {place}": _address(place) for place in node.front_doors}
    found: list[Finding] = []
    try:
        for place, address in places.items():
            said = await effective(account, address, sshd=sshd, config=config)
            found += judge(node, said, account, place)
        said = await effective("root", "192.0.2.1", sshd=sshd, config=config)
        found += [_same("sshd's principals for root", said, _principals(node))]
    except CommandError as error:
        return [failed("sshd's files", str(error))]
    return found


def judge(node: Node, said: Effective, account: str, place: str) -> Iterator[Finding]:
    """What an account of the range meets when it comes from somewhere; pure."""
    if place == "elsewhere":
        yield _same("sshd's authorities", said, {"trustedusercakeys": node.user_ca})
        yield _same("sshd's revocation list", said, {"revokedkeys": node.revoked_keys})
        yield _same("sshd's principals", said, _principals(node))
        yield from _judge_account(said, account)
        if node.host_certificate:
            yield _presented(said, node.host_certificate)
    yield _same(f"certificates from {place}", said, {"pubkeyauthentication": "yes"})
    yield _accepted(said, place)
    yield _same(f"no command of sshd's own from {place}", said, {"forcecommand": "none"})
    yield _environment(said, place)
    yield _second_factor(node, said, place)


def _judge_account(said: Effective, account: str) -> Iterator[Finding]:
    if said.get("usepam") == ("yes",):
        yield ok("expired accounts", "UsePAM yes: PAM's account stage refuses them")
    else:
        yield warning(
            "expired accounts", "UsePAM no: sshd then looks at /etc/shadow, and no further"
        )
    keys = {name: _first(said, name) for name in ("authorizedkeysfile", "authorizedkeyscommand")}
    if set(keys.values()) <= {"none", ""}:
        yield ok("no other keys", f"{account} gets in with certificates only")
    else:
        yield warning(
            "no other keys",
            f"a key in the home folder of {account} outlives a suspension; name people_group",
        )
    if _first(said, "permituserenvironment") not in {"no", ""}:
        yield failed("the users' environment", "PermitUserEnvironment must be no")


def _accepted(said: Effective, place: str) -> Finding:
    # sshd writes patterns out as the names they stand for; the first name is that of old releases.
    kinds = _first(said, "pubkeyacceptedkeytypes") + "," + _first(said, "pubkeyacceptedalgorithms")
    by = _first(said, "casignaturealgorithms")
    check = f"Ed25519 certificates from {place}"
    if CERTIFICATES not in kinds.split(","):
        return failed(check, f"PubkeyAcceptedAlgorithms leaves out {CERTIFICATES}")
    if by and "ssh-ed25519" not in by.split(","):
        return failed(check, "CASignatureAlgorithms leaves out ssh-ed25519")
    return ok(check)


def _environment(said: Effective, place: str) -> Finding:
    patterns = [pattern for line in said.get("acceptenv", ()) for pattern in line.split()]
    obeyed = sorted({name for name in OBEYED for pattern in patterns if fnmatchcase(name, pattern)})
    check = f"variables from {place}"
    if obeyed:
        return failed(check, f"AcceptEnv lets in {', '.join(obeyed)}: a limited certificate is not")
    return ok(check, f"AcceptEnv {' '.join(patterns) or '(nothing)'}")


def _second_factor(node: Node, said: Effective, place: str) -> Finding:
    methods = " ".join(said.get("authenticationmethods", ("any",))).split()
    alone = "publickey" in methods or methods == ["any"]
    if place == "elsewhere":
        check = "second factor of people"
        if alone and node.second_factor:
            return failed(check, f"AuthenticationMethods {' '.join(methods)}: a key is enough")
        return ok(check, f"AuthenticationMethods {' '.join(methods)}")
    check = f"no second factor from {place}"
    if not alone:
        return failed(check, f"AuthenticationMethods {' '.join(methods)}: services have none")
    return ok(check)


def _principals(node: Node) -> dict[str, str]:
    if node.principals == "files":
        return {
            "authorizedprincipalsfile": f"{node.principals_folder}/%u",
            "authorizedprincipalscommand": "none",
        }
    return {
        "authorizedprincipalscommand": f"{node.principals_program} %u %U",
        "authorizedprincipalscommanduser": node.principals_user,
        "authorizedprincipalsfile": "none",
    }


def _same(check: str, said: Effective, wanted: Mapping[str, str]) -> Finding:
    other = [
        f"{keyword} is {_first(said, keyword) or 'not set'}, not {value}"
        for keyword, value in wanted.items()
        if (_first(said, keyword) or "none") != value
    ]
    return failed(check, "; ".join(other)) if other else ok(check, ", ".join(wanted.values()))


def _presented(said: Effective, certificate: str) -> Finding:
    # Whether there is such a file is another question, asked elsewhere.
    check = "sshd's host certificate"
    if certificate in said.get("hostcertificate", ()):
        return ok(check, certificate)
    return failed(check, f"sshd has no line: HostCertificate {certificate}")


def _first(said: Effective, keyword: str) -> str:
    return next(iter(said.get(keyword, ())), "")


def _address(network: str) -> str:
    return network.partition("/")[0]
