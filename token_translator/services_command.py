"""Other services at the host's terminal: which may call, and the switch that stops one at once."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from headgate.clock import Clock, rfc3339
from headgate.settings import SettingsError
from token_translator.stops import Stops

_SENTENCES = {
    "services": "list the services that may call, and which of them are stopped",
    "stop-service": "seal and sign nothing more for a service, from now on",
    "start-service": "let a stopped service go on",
}
VERBS = frozenset(_SENTENCES)


def add_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the three verbs to a command's own."""
    for name, sentence in _SENTENCES.items():
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
        if name != "services":
            verb.add_argument("instance", help="its name in [[peers]]")
        if name == "stop-service":
            verb.add_argument("--reason", required=True, help="said to whom it refuses")


async def run(
    options: argparse.Namespace, stops: Stops, *, known: Sequence[str], by: str, clock: Clock
) -> int:
    """Do one of `VERBS` in somebody's name; `known` are the instances that may call.

    Raises:
        SettingsError: there is no such service.
    """
    if options.verb == "services":
        await _list(stops, known)
    elif options.instance not in known:
        words = f"there is no service {options.instance}; there is {', '.join(known)}"
        raise SettingsError(words)
    elif options.verb == "stop-service":
        new = await stops.stop(options.instance, reason=options.reason, by=by, now=clock.now())
        done = "is" if new else "was already"
        _say(f"{options.instance} {done} stopped: nothing is sealed or signed for it")
    else:
        stopped = await stops.start(options.instance, by=by, now=clock.now())
        _say(f"{options.instance} {'goes on' if stopped else 'was not stopped'}")
    return 0


async def _list(stops: Stops, known: Sequence[str]) -> None:
    stopped = {stop.instance: stop for stop in await stops.all()}
    for instance in known:
        stop = stopped.get(instance)
        state = f"stopped {rfc3339(stop.since)} by {stop.by}: {stop.reason}" if stop else "running"
        _say(f"{instance}  {state}")


def _say(words: str) -> None:
    print(words)  # noqa: T201 - the answer
