"""From a source's user name to a unix account name, by one stated rule, or a reason why not."""

import re
from collections.abc import Collection

SHAPE = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
"""useradd(8)'s own shape, without the trailing dollar sign."""

RESERVED = frozenset(
    {
        *("root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp"),
        *("proxy", "backup", "list", "irc", "nobody", "nogroup", "adm", "operator", "halt"),
        *(
            "sshd",
            "munge",
            "slurm",
            "slurmrestd",
            "mysql",
            "postgres",
            "zabbix",
            "ldap",
            "openldap",
        ),
        *("www-data", "nginx", "apache", "docker", "podman", "dbus", "messagebus", "polkitd"),
        *("admin", "administrator", "sudo", "wheel", "staff", "users", "guest", "test", "oinit"),
        *(
            "shadow",
            "disk",
            "kmem",
            "tty",
            "video",
            "render",
            "input",
            "kvm",
            "systemd",
            "headgate",
        ),
    }
)
RESERVED_PREFIXES = ("systemd-", "headgate-", "hg-", "_")


def derive(user_name: str) -> str:
    """The account name a user name leads to: in lower case, `. @ +` and space become `-`.

    Nothing is transliterated or normalised and nothing is cut off: what does not fit then is not
    made to fit, for two people must never be led to one name by a guess, nor an administrator be
    shown a name that looks like somebody else's (a ligature, a Kelvin sign, a full-width letter).

    Raises:
        ValueError: the result is not an account name; the message says why.
    """
    name = re.sub(r"[.@+ ]", "-", user_name.lower())
    if not user_name.isascii() or not SHAPE.fullmatch(name):
        raise ValueError("the user name does not fit a unix account name")
    return name


def forbidden(name: str, reserved: Collection[str] = ()) -> str:
    """Why this account name is never given, or an empty string."""
    if not SHAPE.fullmatch(name):
        return "not a unix account name"
    if name in RESERVED or name in reserved or name.startswith(RESERVED_PREFIXES):
        return f"{name} is reserved"
    return ""
