"""A real Zabbix server with its frontend, for what monitoring_probe sends; started on request."""

import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from testbed import cache
from testbed.components import Accepts, Answers, Component, Ends, Listens
from testbed.folders import Folder
from testbed.instances import InstanceError

USER = "zabbix"
PORTS = ("zabbix-trapper", "zabbix-web")

_SCHEMA = Path("/usr/share/zabbix-server-pgsql")
_FRONTEND = Path("/usr/share/zabbix")
_POSTGRESQL = Path("/usr/lib/postgresql")

# What the server and the frontend need of the stock data; the rest is templates: 20 s of loading.
_TABLES = re.compile(
    r"(config|expressions|globalmacro|graph_theme|hstgrp|ids|media_type\w*|module|regexps|rights"
    r"|role|role_rule|scripts|users|users_groups|usrgrp)$"
)
_POSTGRES_OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
_PHP_OPTIONS = (
    "post_max_size=16M",
    "max_execution_time=300",
    "max_input_time=300",
    "date.timezone=UTC",
)


class Zabbix(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is, and its administrator."""

    trapper_host: str
    trapper_port: int
    url: str
    user: str = "Admin"
    password: str = "zabbix"  # noqa: S105 - as shipped, known to everybody


def address(ports: Mapping[str, int]) -> Zabbix:
    """Where a site's Zabbix is, or will be."""
    return Zabbix(
        trapper_host="127.0.0.1",
        trapper_port=ports["zabbix-trapper"],
        url=f"http://127.0.0.1:{ports['zabbix-web']}",
    )


async def prepare(folder: Folder, ports: Mapping[str, int]) -> tuple[Component, ...]:
    """Write its configuration and say how it is run; the database answers on a socket only.

    Raises:
        InstanceError: the distribution's packages are not there.
    """
    programs = _postgresql()
    sql = await _sql()
    home = folder.make("zabbix", owner=USER, mode=0o700)
    folder.make("zabbix/sessions", owner=USER, mode=0o700)
    folder.write("zabbix/server.conf", _server_conf(home, ports), owner=USER, mode=0o600)
    frontend = folder.path("etc", "zabbix", "zabbix.conf.php")  # Debian's frontend reads this one
    folder.write(str(frontend.relative_to(folder.root)), _frontend_conf(home))
    return (*_database(programs, sql, home), *_serving(home, ports))


def _database(programs: Path, sql: Path, home: Path) -> tuple[Component, ...]:
    client = ("-h", str(home), "-U", USER)
    encoding = ("-E", "UTF8", "--locale=C.UTF-8")
    options = (word for option in _POSTGRES_OPTIONS for word in ("-c", option))
    psql = (str(programs / "psql"), *client, "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null")
    return (
        Component(
            name="zabbix-initdb",
            argv=(
                *(str(programs / "initdb"), "-D", str(home / "data"), "-U", USER),
                *("-A", "trust", *encoding, "--no-sync"),
            ),
            user=USER,
            ready=Ends(),
        ),
        Component(
            name="zabbix-postgresql",
            argv=(
                *(str(programs / "postgres"), "-D", str(home / "data"), "-k", str(home)),
                *("-c", "listen_addresses=", *options),
            ),
            user=USER,
            after=("zabbix-initdb",),
            ready=Accepts(str(home / ".s.PGSQL.5432")),
        ),
        Component(
            name="zabbix-schema",
            argv=(
                *(*psql, "-d", "postgres", "-c", "CREATE DATABASE zabbix"),
                *("-c", r"\c zabbix", "-f", str(sql)),
            ),
            user=USER,
            after=("zabbix-postgresql",),
            ready=Ends(),
        ),
    )


def _serving(home: Path, ports: Mapping[str, int]) -> tuple[Component, ...]:
    options = (word for option in _PHP_OPTIONS for word in ("-d", option))
    sessions = ("-d", f"session.save_path={home / 'sessions'}")
    web = ports["zabbix-web"]
    return (
        Component(
            name="zabbix-server",
            argv=("zabbix_server", "-f", "-c", str(home / "server.conf")),
            user=USER,
            after=("zabbix-schema",),
            ready=Listens(ports["zabbix-trapper"]),
        ),
        Component(
            name="zabbix-web",
            argv=("php", *options, *sessions, "-S", f"127.0.0.1:{web}", "-t", str(_FRONTEND)),
            user=USER,
            environment={"PHP_CLI_SERVER_WORKERS": "2"},
            after=("zabbix-schema",),
            whole_group=True,  # PHP's workers outlive it, and hold the port
            ready=Answers(web, "/index.php"),
        ),
    )


def _postgresql() -> Path:
    """The programs of the newest PostgreSQL that the distribution installed."""
    found = sorted(
        (path for path in _POSTGRESQL.glob("[0-9]*/bin") if (path / "initdb").exists()),
        key=lambda path: int(path.parent.name),
    )
    if not (found and _SCHEMA.is_dir() and _FRONTEND.is_dir()):
        raise InstanceError(
            "zabbix needs the packages postgresql, zabbix-server-pgsql, zabbix-frontend-php, "
            "php-cli and php-pgsql"
        )
    return found[-1]


async def _sql() -> Path:
    """The schema and the least data, as one file, made once per packaged version."""
    schema, data = ((_SCHEMA / f"{name}.sql.gz").read_bytes() for name in ("schema", "data"))
    path = cache.place(f"zabbix-{hashlib.sha256(schema + data).hexdigest()[:12]}.sql")
    if not path.exists():
        async with cache.making(path) as scratch:
            with (scratch / "made").open("w", encoding="utf-8") as file:
                file.write("SET session_replication_role = replica;\nBEGIN;\n")
                file.write(gzip.decompress(schema).decode())
                file.writelines(_needed(gzip.decompress(data).decode()))
                file.write("COMMIT;\n")
            (scratch / "made").chmod(0o644)
    return path


def _needed(data: str) -> Iterator[str]:
    """The INSERT statements of the tables above; their values span lines."""
    wanted = False
    for line in data.splitlines(keepends=True):
        if start := re.match(r"INSERT INTO (\w+) ", line):
            wanted = bool(_TABLES.match(start[1]))
        elif re.match(r"(DELETE|UPDATE|COMMIT|BEGIN|START|SELECT) ?\b.*;$", line):
            wanted = False
        if wanted:
            yield line


def _server_conf(home: Path, ports: Mapping[str, int]) -> str:
    return f"""\
ListenIP=127.0.0.1
ListenPort={ports["zabbix-trapper"]}
LogType=console
PidFile={home}/server.pid
SocketDir={home}
DBHost={home}
DBName=zabbix
DBUser={USER}
CacheUpdateFrequency=1
StartPollers=1
StartTrappers=2
StartPreprocessors=1
StartLLDProcessors=1
StartPingers=0
StartDiscoverers=0
StartHTTPPollers=0
StartReportWriters=0
HousekeepingFrequency=0
"""


def _frontend_conf(home: Path) -> str:
    return f"""\
<?php
$DB['TYPE'] = 'POSTGRESQL';
$DB['SERVER'] = '{home}';
$DB['PORT'] = '0';
$DB['DATABASE'] = 'zabbix';
$DB['USER'] = '{USER}';
$DB['PASSWORD'] = '';
$DB['SCHEMA'] = '';
$DB['ENCRYPTION'] = false;
$DB['DOUBLE_IEEE754'] = true;
$ZBX_SERVER_NAME = 'testbed';
$IMAGE_FORMAT_DEFAULT = IMAGE_FORMAT_PNG;
"""
