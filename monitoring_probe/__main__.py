"""`headgate-probe`: measure the cluster and the suite, judge, tell Zabbix (cron, timer, plugin)."""

import argparse
import asyncio
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from headgate import logs
from headgate.clock import Clock, SystemClock
from headgate.settings import (
    EX_CONFIG,
    SettingsError,
    command_environment,
    read_secret,
    show,
)
from headgate.slurm.cli import CommandReader, command_variables
from headgate.slurm.memory.reader import MemoryReader
from headgate.slurm.model import ClusterReader
from monitoring_probe import plugin
from monitoring_probe.cycle import Cycle, Measured, Unspooled, look
from monitoring_probe.judge import State, worst
from monitoring_probe.provision import ApiError, Login, Wanted, provision
from monitoring_probe.settings import (
    ApiSettings,
    ProbeSettings,
    SlurmSettings,
    TrapperSettings,
    address,
    read,
)
from monitoring_probe.spool import Busy, Spool
from monitoring_probe.template import template
from monitoring_probe.zabbix.trapper import ZabbixTrapper

log = structlog.get_logger(__name__)

CONFIG = Path("/etc/headgate/probe.toml")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns 0; 1 if the probe itself failed; 78 if the settings are wrong. `check` returns the
    state as monitoring plugins do: 0 OK, 1 warning, 2 critical, 3 unknown.
    """
    arguments = _parser().parse_args(argv)
    logs.configure(arguments.log_level)
    if arguments.verb == "template":
        sys.stdout.write(template())
        return 0
    unknown = int(State.UNKNOWN) if arguments.verb == "check" else 0
    try:
        return asyncio.run(_do(arguments, read(arguments.config)))
    except SettingsError as error:
        return _failed(str(error), unknown or EX_CONFIG)
    except TimeoutError:
        return _failed("not done within the configured deadline", unknown or 1)
    except (ApiError, Unspooled) as error:
        return _failed(str(error), 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate-probe", description=__doc__)
    parser.add_argument(
        "--config", type=Path, default=CONFIG, metavar="FILE", help=f"settings, TOML; else {CONFIG}"
    )
    parser.add_argument("--log-level", default="warning", choices=("debug", "info", "warning"))
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="measure once and send, with what waits in the spool")
    run.add_argument("--stdout", action="store_true", help="print the values, send nothing")
    verbs.add_parser("check", help="measure once, one line and exit status as a plugin")
    make = verbs.add_parser("provision", help="make template, host group and host in Zabbix")
    make.add_argument("--dry-run", action="store_true", help="say what would be done")
    verbs.add_parser("template", help="print the Zabbix template, YAML")
    verbs.add_parser("check-config", help="print what was understood")
    for verb in verbs.choices.values():
        # Behind the verb, too; without a default, which would undo what stands before it.
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
    return parser


async def _do(arguments: argparse.Namespace, settings: ProbeSettings) -> int:
    if arguments.verb == "check-config":
        sys.stdout.write(show(settings) + "\n")
        return 0
    if arguments.verb == "provision":
        return await _provision(settings, dry_run=arguments.dry_run)
    clock = SystemClock()
    spool = Spool(
        Path(settings.spool.path),
        max_age=settings.spool.max_age,
        max_bytes=settings.spool.max_bytes,
    )
    if arguments.verb == "check" or arguments.stdout:
        async with asyncio.timeout(settings.deadline):
            measured = await look(_reader(settings.slurm), spool, settings, clock)
        return _print(measured, as_plugin=arguments.verb == "check")
    return await _run(settings, spool, _reader(settings.slurm), clock)


def _print(measured: Measured, *, as_plugin: bool) -> int:
    if as_plugin:
        sys.stdout.write(plugin.line(measured.verdicts, measured.readings) + "\n")
        return int(worst(measured.verdicts))
    text = msgspec.json.format(msgspec.json.encode(measured.readings), indent=2)
    sys.stdout.write(text.decode() + "\n")
    return 0


async def _run(settings: ProbeSettings, spool: Spool, reader: ClusterReader, clock: Clock) -> int:
    if settings.zabbix is None:
        raise SettingsError("run needs a [zabbix] table (or --stdout)")
    trapper = ZabbixTrapper(
        [address(server) for server in settings.zabbix.servers],
        timeout=settings.zabbix.timeout,
        tls=_tls(settings.zabbix),
    )
    try:
        outcome = await Cycle(reader, spool, trapper, settings, clock).run(settings.zabbix.host)
    except Busy as busy:
        # Cron started us while the last run is at work: that one sends for both.
        log.warning("another_run_is_at_work", error=str(busy))
        return 0
    if outcome.stopped or outcome.refused:
        log.warning(
            "not_all_sent",
            reason=outcome.stopped or "Zabbix does not take it: is the host provisioned?",
            refused=outcome.refused,
            left=outcome.left,
        )
    return 0


def _reader(slurm: SlurmSettings) -> ClusterReader:
    if slurm.memory is not None:
        return MemoryReader(Path(slurm.memory.socket), timeout=slurm.timeout)
    environment = command_variables(command_environment(), slurm.conf)
    return CommandReader(env=environment, timeout=slurm.timeout)


class _Tls:
    """Makes the TLS context of a connection to the trapper."""

    def __init__(self, settings: TrapperSettings) -> None:
        self._settings = settings
        self()  # a certificate that cannot be read is an error of the settings, found now

    def __call__(self) -> ssl.SSLContext:
        settings = self._settings
        try:
            context = ssl.create_default_context(cafile=settings.tls_ca)
            if settings.tls_certificate:
                context.load_cert_chain(settings.tls_certificate, settings.tls_key or None)
        except OSError as error:
            raise SettingsError(f"zabbix.tls_ca, tls_certificate: {error}") from error
        # Zabbix names no host in its certificates; the CA, ours alone, is what is checked.
        context.check_hostname = False
        return context


def _tls(settings: TrapperSettings) -> _Tls | None:
    return _Tls(settings) if settings.tls_ca else None


async def _provision(settings: ProbeSettings, *, dry_run: bool) -> int:
    if settings.api is None or settings.zabbix is None:
        raise SettingsError("provision needs an [api] and a [zabbix] table")
    wanted = Wanted(
        settings.zabbix.host,
        settings.api.host_group,
        settings.api.senders,
        settings.api.visible_name,
    )
    # Only this verb needs it, and it is the slowest import: a run every minute should not pay.
    from monitoring_probe.zabbix.api import ZabbixApi  # noqa: PLC0415 - see above

    api = ZabbixApi(settings.api.url, timeout=settings.api.timeout, ca=settings.api.ca)
    try:
        await _login(api, settings.api)
        lines = await provision(api, wanted, template(), dry_run=dry_run)
    finally:
        await api.close()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


async def _login(api: Login, settings: ApiSettings) -> None:
    if settings.token_file:
        await api.login(token=read_secret(Path(settings.token_file)).decode())
    elif settings.user and settings.password_file:
        password = read_secret(Path(settings.password_file)).decode()
        await api.login(user=settings.user, password=password)
    else:
        raise SettingsError("api: token_file, or user and password_file, is needed")


def _failed(sentence: str, status: int) -> int:
    sys.stderr.write(f"headgate-probe: {sentence}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
