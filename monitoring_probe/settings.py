"""What an administrator tells the probe: the cluster, the services, the thresholds, Zabbix."""

from pathlib import Path
from typing import Annotated

import msgspec

from headgate.settings import Section, SettingsError, load

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class MemorySettings(Section, frozen=True):
    """The simulated cluster's socket, for the embedded site."""

    socket: str


class SlurmSettings(Section, frozen=True):
    """Which cluster is asked; `timeout` is for one command, in seconds.

    `memory` is a simulated cluster instead.
    """

    conf: str = ""
    timeout: Seconds = 10.0
    memory: MemorySettings | None = None


class ServiceSettings(Section, frozen=True):
    """A service of the suite: `url` is its base, `/readyz` is asked there."""

    name: Name
    url: str
    timeout: Seconds = 5.0
    slow: Seconds = 2.0


class Thresholds(Section, frozen=True):
    """From which share of bad nodes or GPUs, and which age of unsent values, somebody is told."""

    nodes_warning: Share = 0.1
    nodes_critical: Share = 0.5
    gpus_warning: Share = 0.1
    gpus_critical: Share = 0.5
    spool_warning: Seconds = 900.0


class TrapperSettings(Section, frozen=True):
    """The Zabbix server or proxies that take values; several are tried in turn.

    `host` is the technical name of the host that has our template. `tls_ca` turns TLS on.
    """

    host: Annotated[str, msgspec.Meta(min_length=1)]
    servers: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("127.0.0.1:10051",)
    timeout: Seconds = 10.0
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""


class ApiSettings(Section, frozen=True):
    """Zabbix's web API, for `provision` only: a token, or a user and a password, by file.

    `senders` are the addresses that may send values (Zabbix: allowed hosts).
    """

    url: str
    token_file: str = ""
    user: str = ""
    password_file: str = ""
    ca: str = ""
    timeout: Seconds = 60.0
    host_group: str = "headgate"
    visible_name: str = ""
    senders: str = "0.0.0.0/0,::/0"


class SpoolSettings(Section, frozen=True):
    """Where values wait while Zabbix is away: at most this old (seconds) and this many bytes.

    A run that Zabbix refuses is put aside after `patience` seconds if it takes others: that is
    longer than a server needs to learn of a new host.
    """

    path: str = "/var/lib/headgate-probe/spool"
    max_age: Seconds = 86400.0
    max_bytes: Annotated[int, msgspec.Meta(gt=0)] = 64 * 1024 * 1024
    patience: Seconds = 600.0


class ProbeSettings(Section, frozen=True):
    """The whole file. `deadline` is for one run, in seconds: less than the interval of runs."""

    slurm: SlurmSettings = SlurmSettings()
    service: tuple[ServiceSettings, ...] = ()
    thresholds: Thresholds = Thresholds()
    zabbix: TrapperSettings | None = None
    api: ApiSettings | None = None
    spool: SpoolSettings = SpoolSettings()
    deadline: Seconds = 50.0


def read(path: Path) -> ProbeSettings:
    """The settings in `path`.

    Raises:
        SettingsError: unreadable, unknown keys, wrong types, an address that is none, two
            services of one name.
    """
    settings = load(path, ProbeSettings)
    for service in settings.service:
        if not service.url.startswith(("http://", "https://")):
            raise SettingsError(f"{path}: service.url: {service.url} is no http(s) URL")
    names = [service.name for service in settings.service]
    if len(names) != len(set(names)):
        raise SettingsError(f"{path}: service.name: two services have one name")
    for server in settings.zabbix.servers if settings.zabbix else ():
        try:
            address(server)
        except SettingsError as error:
            raise SettingsError(f"{path}: {error}") from error
    return settings


def address(server: str) -> tuple[str, int]:
    """Host and port of `host` or `host:port` (10051).

    Raises:
        SettingsError: no such address. The sender library cannot take IPv6 literals; names can.
    """
    host, _, port = server.partition(":")
    if not host or ":" in port or (port and not port.isdecimal()):
        raise SettingsError(f"zabbix.servers: {server} is not HOST or HOST:PORT")
    return host, int(port or 10051)
