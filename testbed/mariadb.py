"""The site's MariaDB: made once per release, copied for each site, with nothing kept safe."""

import hashlib
import shutil
from pathlib import Path

from headgate.command import run
from testbed import cache
from testbed.components import Component, Listens
from testbed.folders import Folder

USER = "mysql"
_SECONDS = 120.0

# Nothing here has to survive a power cut.
_OPTIONS = (
    "--skip-log-bin",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--innodb-doublewrite=0",
    "--innodb-log-file-size=16M",
    "--innodb-buffer-pool-size=64M",
    "--innodb-lock-wait-timeout=900",
    "--performance-schema=0",
)


async def prepare(
    folder: Folder, *, port: int, database: str, user: str, password: str
) -> Component:
    """Give a site its data folder; the server will have `database` and a `user` for it.

    Raises:
        CommandError: the data folder could not be made.
    """
    home = folder.make("mariadb", owner=USER, mode=0o700)
    # Run at each start. `root` is reached through the socket only, by root.
    folder.write(
        "mariadb/init.sql",
        f"CREATE DATABASE IF NOT EXISTS {database};\n"
        f"CREATE OR REPLACE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON {database}.* TO {user}@'127.0.0.1';\n",
        owner=USER,
        mode=0o600,
    )
    template = await _template()
    copy = ("cp", "-a", "--reflink=auto", str(template), str(home / "data"))
    (await run(copy, timeout=_SECONDS)).checked()
    return Component(
        name="mariadb",
        argv=(
            "mariadbd",
            "--no-defaults",
            *_OPTIONS,
            f"--datadir={home / 'data'}",
            f"--socket={home / 'socket'}",
            f"--pid-file={home / 'pid'}",
            f"--init-file={home / 'init.sql'}",
            "--bind-address=127.0.0.1",
            f"--port={port}",
        ),
        user=USER,
        ready=Listens(port),
    )


async def _template() -> Path:
    """An initialised data folder of this release, for copying."""
    version = (await run(("mariadbd", "--version"), timeout=_SECONDS)).checked().stdout
    key = hashlib.sha256(version + " ".join(_OPTIONS).encode()).hexdigest()[:12]
    template = cache.place(f"mariadb-{key}")
    if not template.exists():
        async with cache.making(template) as scratch:
            made, temporary = scratch / "made", scratch / "tmp"
            temporary.mkdir()
            for path in (scratch, temporary):
                shutil.chown(path, USER)
            initialise = (
                *("mariadb-install-db", "--no-defaults", *_OPTIONS),
                *(f"--datadir={made}", f"--user={USER}", f"--tmpdir={temporary}"),
                *("--auth-root-authentication-method=socket", "--auth-root-socket-user=root"),
                "--skip-test-db",
            )
            (await run(initialise, timeout=_SECONDS)).checked()
    return template
