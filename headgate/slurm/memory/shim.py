"""`sbatch`, `scancel`, `scontrol`, `squeue`, `sinfo` of the simulated cluster, one file for all.

Standard library only, so that a command starts at once. It knows the options that headgate and
people at a terminal use, and refuses all others loudly. The first argument is the command's name.
"""

import getopt
import json
import os
import pwd
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

SOCKET = "HEADGATE_MEMORY_SOCKET"
_ANSWER_SECONDS = 30.0

_WITH_VALUE = {
    "A": "account",
    "D": "chdir",
    "J": "job-name",
    "N": "nodes",
    "G": "gpus",
    "c": "cpus-per-task",
    "e": "error",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "t": "time",
}
_LONG_ONLY = (
    "comment",
    "export",
    "gpus-per-node",
    "gres",
    "mem",
    "ntasks-per-node",
    "reservation",
    "wrap",
)
_FLAGS = ("hold", "no-requeue", "parsable", "requeue", "test-only")

Options = dict[str, str]


class Failed(Exception):  # noqa: N818 - ends a command with a status and words
    """Words for standard error and an exit status."""

    def __init__(self, words: str, status: int = 1) -> None:
        super().__init__(words)
        self.words = words
        self.status = status


def sbatch(argv: Sequence[str]) -> None:
    """Submit a script from a file or standard input; its own #SBATCH lines count less."""
    options, rest = _sbatch_options(argv)
    script, arguments = _script(options, rest)
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            own, _ = _sbatch_options(shlex.split(line.removeprefix("#SBATCH"), comments=True))
            options = {**own, **options}
        elif line.strip() and not line.startswith("#"):
            break
    if "wrap" in options:
        options.setdefault("job-name", "wrap")
    elif rest:
        options.setdefault("job-name", os.path.basename(rest[0]))  # noqa: PTH119 - as it is written
    answer = _ask(
        {
            "type": "submit",
            "options": {key: options[key] for key in options if key not in {"parsable", "wrap"}},
            "script": script,
            "arguments": arguments,
            "environment": _exported(options.get("export", "ALL")),
            "directory": os.getcwd(),  # noqa: PTH109 - one call, as a string
            "host": socket.gethostname(),
        },
        refused="sbatch: error: ",
        away="sbatch: error: Batch job submission failed: ",
    )
    if "test-only" in options:
        sys.stderr.write(f"sbatch: {answer['words']}\n")
    else:
        _say(answer["id"] if "parsable" in options else answer["words"])


def scancel(argv: Sequence[str]) -> None:
    """End jobs, or send them a signal."""
    known = ("name=", "me", "user=", "signal=", "jobname=", "verbose", "quiet")
    options, rest = _options("scancel", argv, "n:s:u:vQ", known)
    ids = []
    for text in rest:
        if not text.isdigit():
            raise Failed(f"scancel: error: Invalid job id {text}")
        ids.append(int(text))
    name = options.get("--name", options.get("-n", options.get("--jobname")))
    own = "--me" in options or "--user" in options or "-u" in options
    if not ids and name is None and not own:
        raise Failed("scancel: error: No job identification provided")
    user = options.get("--user", options.get("-u"))
    if user is not None and user not in {pwd.getpwuid(os.getuid()).pw_name, str(os.getuid())}:
        return  # all jobs here are ours
    if own and name is None and not ids:
        ids = [job["job_id"] for job in _jobs("scancel")]
        if not ids:
            return
    number = _signal(options.get("--signal", options.get("-s", "")))
    question = {"type": "cancel", "ids": ids, "name": name, "signal": number}
    _ask(question, refused="scancel: error: ", away="scancel: error: ")


def scontrol(argv: Sequence[str]) -> None:
    """Show a job or the controller, hold and release jobs, drain and resume nodes."""
    _, rest = _options("scontrol", argv, "ado", ("all", "details", "oneliner"))
    match rest:
        case ["ping"]:
            _ping()
        case ["show", "job", number] if number.isdigit():
            _show_job(int(number))
        case [("hold" | "release") as verb, *numbers] if all(map(str.isdigit, numbers)):
            for number in numbers:
                _ask({"type": "change", "verb": verb, "id": int(number)})
        case ["update", *pairs]:
            _update(pairs)
        case _:
            raise Failed(f"invalid keyword: {' '.join(rest) or '(none)'}")


def squeue(argv: Sequence[str]) -> None:
    """Print the queue for people."""
    known = ("noheader", "me", "name=", "jobs=", "all")
    options, _ = _options("squeue", argv, "hn:j:a", known)
    name = options.get("--name", options.get("-n"))
    numbers = options.get("--jobs", options.get("-j"))
    if "-h" not in options and "--noheader" not in options:
        _say(f"{'JOBID':>8} {'PARTITION':9} {'USER':8} {'STATE':11} {'NODES':>5} NODELIST(REASON)")
    for job in _jobs("squeue", name):
        if numbers is not None and str(job["job_id"]) not in numbers.split(","):
            continue
        where = job["node_list"] or f"({job['reason']})"
        queue = ",".join(job["partitions"])
        owner = f"{queue:9} {job['user']:8}"
        _say(f"{job['job_id']:>8} {owner} {job['state']:11} {job['nodes']:>5} {where}")


def sinfo(argv: Sequence[str]) -> None:
    """Print the nodes for people."""
    options, _ = _options("sinfo", argv, "hNa", ("noheader", "Node", "all"))
    if "-h" not in options and "--noheader" not in options:
        _say(f"{'NODELIST':12} {'STATE':12} {'CPUS(A/T)':10} {'GRES':22} PARTITIONS")
    for node in _ask({"type": "ask", "what": "nodes"}):
        state = "+".join([node["state"]["base"], *node["state"]["flags"]]).lower()
        cpus = f"{node['cpus_allocated']}/{node['cpus']}"
        gres = ",".join(f"{each['name']}:{each['type']}:{each['count']}" for each in node["gres"])
        _say(f"{node['name']:12} {state:12} {cpus:10} {gres:22} {','.join(node['partitions'])}")


def _sbatch_options(argv: Sequence[str]) -> tuple[Options, list[str]]:
    short = "".join(f"{letter}:" for letter in _WITH_VALUE) + "HQ"
    long = [f"{name}=" for name in (*_WITH_VALUE.values(), *_LONG_ONLY)]
    found, rest = _options("sbatch", argv, short, (*long, *_FLAGS, "quiet"))
    options: Options = {}
    for name, value in found.items():
        key = name.lstrip("-")
        key = {"H": "hold", "Q": "quiet"}.get(key, _WITH_VALUE.get(key, key))
        if key != "quiet":
            options[key] = value
    if "requeue" in options:
        del options["requeue"]
        options.pop("no-requeue", None)
    return options, rest


def _options(
    command: str, argv: Sequence[str], short: str, long: Sequence[str]
) -> tuple[Options, list[str]]:
    try:
        found, rest = getopt.getopt(list(argv), short, list(long))
    except getopt.GetoptError as error:
        name = f"'--{error.opt}'" if len(error.opt) > 1 else f"-- '{error.opt}'"
        words = "option requires an argument" if "argument" in error.msg else "unrecognized option"
        hint = f'Try "{command} --help" for more information'
        raise Failed(f"{command}: {words} {name}\n{hint}", 255) from error
    return dict(found), rest


def _script(options: Mapping[str, str], rest: Sequence[str]) -> tuple[str, list[str]]:
    if "wrap" in options:
        return f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{options['wrap']}\n", []
    if not rest:
        return sys.stdin.buffer.read().decode("utf-8", "surrogateescape"), []
    try:
        script = Path(rest[0]).read_bytes()
    except OSError as error:
        raise Failed(f"sbatch: error: Unable to open file {rest[0]}") from error
    return script.decode("utf-8", "surrogateescape"), list(rest[1:])


def _exported(export: str) -> dict[str, str]:
    """The part of the environment that the job gets (sbatch(1), --export)."""
    own = {key: value for key, value in os.environ.items() if key != SOCKET}
    words = export.split(",")
    if words[0].upper() == "NIL":
        return {}
    login = pwd.getpwuid(os.getuid())
    kept = {
        "HOME": login.pw_dir,
        "LOGNAME": login.pw_name,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "SHELL": login.pw_shell,
        "USER": login.pw_name,
    }
    if words[0].upper() == "NONE":
        return kept | {"SLURM_EXPORT_ENV": "NONE", "SLURM_GET_USER_ENV": "1"}
    if words[0].upper() == "ALL":
        kept, words = own, words[1:]
    for word in words:
        name, equals, value = word.partition("=")
        if equals or name in own:
            kept[name] = value if equals else own[name]
    return kept


def _signal(text: str) -> int:
    if not text:
        return 0
    try:
        return int(text) if text.isdigit() else signal.Signals[f"SIG{text.removeprefix('SIG')}"]
    except KeyError as error:
        raise Failed(f"scancel: error: Unknown job signal: {text}") from error


def _ping() -> None:
    try:
        _exchange({"type": "ask", "what": "controllers"})
    except OSError as error:
        raise Failed("Slurmctld(primary) at localhost is DOWN") from error
    _say("Slurmctld(primary) at localhost is UP")


def _update(pairs: Sequence[str]) -> None:
    values = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        values[key.lower()] = value
    state = values.get("state", "").lower()
    if "nodename" not in values or state not in {"drain", "resume"}:
        raise Failed("slurm_update error: only nodes can be changed: drained or resumed")
    drained = state == "drain"
    if drained and not values.get("reason"):
        raise Failed("You must specify a reason when DRAINING a node. Request denied")
    words = values.get("reason", "") if drained else ""
    _ask({"type": "drain", "nodes": values["nodename"], "drained": drained, "reason": words})


def _show_job(number: int) -> None:
    shown = _ask({"type": "show", "id": number})
    job, request = shown["job"], shown["job"]["request"]
    limit = request["time_limit_minutes"]
    tres = ",".join(f"{key}={value}" for key, value in shown["tres"].items())
    status = job.get("status", 0)
    rows = (
        f"JobId={job['id']} JobName={request['name']}",
        f"UserId={job['user']}({job['uid']}) Account={request['account']} QOS=normal",
        f"JobState={shown['state']} Reason={job['reason'] or 'None'}",
        f"Requeue={int(request['requeue'])} Restarts={job.get('restarts', 0)}",
        f"ExitCode={status >> 8 & 255}:{status & 127}",
        f"TimeLimit={'UNLIMITED' if limit is None else f'{limit // 60:02}:{limit % 60:02}:00'}",
        f"SubmitTime={_time(job['submitted_at'])}",
        f"StartTime={_time(job.get('started_at', 0))} EndTime={_time(job.get('ended_at', 0))}",
        f"Partition={job['partition']} NodeList={shown['nodes'] or '(null)'}",
        f"NumNodes={request['node_count']} NumTasks={request['tasks']}",
        f"CPUs/Task={request['cpus_per_task']}",
        f"TRES={tres}",
        f"WorkDir={request['directory']}",
        f"StdErr={request['error']}",
        f"StdOut={request['output']}",
    )
    _say("\n   ".join(rows) + "\n")


def _time(seconds: float) -> str:
    if not seconds:
        return "Unknown"
    if os.environ.get("SLURM_TIME_FORMAT") == "%s":
        return str(int(seconds))
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def _jobs(command: str, name: str | None = None) -> list[dict[str, Any]]:
    where = f"{command}: error: "
    if name is None:
        jobs: list[dict[str, Any]] = _ask({"type": "ask", "what": "jobs"}, away=where)
        return jobs
    named = _ask({"type": "ask", "what": "jobs_named", "names": name.split(",")}, away=where)
    return [job for jobs in named.values() for job in jobs]


def _ask(
    question: Mapping[str, Any], *, refused: str = "", away: str = "slurm_load error: "
) -> Any:  # noqa: ANN401 - what the cluster's JSON holds
    try:
        answer = _exchange(question)
    except OSError as error:
        reason = "Unable to contact slurm controller (connect failure)"
        raise Failed(f"{away}{reason}") from error
    if "error" in answer:
        raise Failed("\n".join(refused + words for words in answer["error"]))
    return answer["ok"]


def _exchange(question: Mapping[str, Any]) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(os.environ[SOCKET])
        connection.sendall(json.dumps(question).encode() + b"\n")
        with connection.makefile("rb") as lines:
            line = lines.readline()
    if not line:
        raise ConnectionResetError("no answer")
    found: dict[str, Any] = json.loads(line)
    return found


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")


COMMANDS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "sbatch": sbatch,
    "scancel": scancel,
    "scontrol": scontrol,
    "sinfo": sinfo,
    "squeue": squeue,
}


def main(argv: Sequence[str]) -> NoReturn:
    """Run one command and exit with its status."""
    try:
        COMMANDS[argv[0]](argv[1:])
    except Failed as failed:
        sys.stderr.write(failed.words + "\n")
        sys.exit(failed.status)
    except BrokenPipeError:
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
