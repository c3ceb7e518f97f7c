"""The process that runs one job of the simulated cluster, and outlives the cluster's own.

Run as a plain file by `python -I -S`, with the standard library only, so that it starts at once:
`step.py FOLDER LOCK LIFELINE`. It holds LOCK (an open, locked file) for as long as it lives, so a
cluster that comes back knows whether the job still runs; how the script ended stands in `exit`.
When LIFELINE (the read end of a pipe, or -1) is closed at its other end, the job is killed.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

LAUNCH_FAILED = 53
"""The wait status that Slurm gives a job whose output cannot be opened."""

_PR_SET_CHILD_SUBREAPER = 36


def main(folder: Path, lock: int, lifeline: int) -> int:
    """Start the job and return once it is known on disk; a child stays with it."""
    launch = json.loads((folder / "launch.json").read_text(encoding="utf-8"))
    known, tell = os.pipe()
    if os.fork():
        os.close(tell)
        return 0 if os.read(known, 1) else 1
    os.close(known)
    os.setsid()
    for inherited in (lock, lifeline):
        if inherited >= 0:
            os.set_inheritable(inherited, False)  # noqa: FBT003 - positional only
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    # What the script leaves behind becomes a child of this process, so that nothing escapes.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    go, release = os.pipe()
    script = os.fork()
    if not script:
        os.close(release)
        os.read(go, 1)
        _become(launch, folder)
    os.close(go)
    _write(folder / "processes", {"step": os.getpid(), "script": script})
    (folder / "launch.json").unlink()  # it holds the environment
    os.write(tell, b".")
    os.close(tell)
    os.write(release, b".")
    status = _wait(script, lifeline)
    _kill_all()
    if (folder / "launch-failed").exists():
        status = LAUNCH_FAILED
    _write(folder / "exit", {"status": status, "ended_at": time.time()})
    os._exit(0)


def descendants(ancestor: int) -> list[int]:
    """Ids of all living processes below one (proc(5), field 4 of /proc/PID/stat)."""
    children: dict[int, list[int]] = {}
    for process, parent in _parents():
        children.setdefault(parent, []).append(process)
    found, new = [], [ancestor]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        found.extend(new)
    return found


def _become(launch: dict[str, Any], folder: Path) -> NoReturn:
    """Turn this process into the script; what cannot be done is said as Slurm says it."""
    os.setsid()
    notice = ""
    try:
        os.chdir(launch["directory"])
    except OSError as error:
        notice = (
            f"slurmstepd: error: couldn't chdir to `{launch['directory']}': "
            f"{error.strerror}: going to /tmp instead\n"
        )
        os.chdir("/tmp")  # noqa: S108 - where Slurm goes
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        os.dup2(os.open(launch["output"], flags, 0o666), 1)
        same = launch["error"] == launch["output"]
        os.dup2(1 if same else os.open(launch["error"], flags, 0o666), 2)
    except OSError:
        (folder / "launch-failed").touch()
        os._exit(1)
    os.write(2, notice.encode())
    script = str(folder / "slurm_script")
    try:
        os.execve(script, [script, *launch["arguments"]], launch["environment"])  # noqa: S606 - it is the job
    except OSError as error:
        os.write(2, f"slurmstepd: error: execve(): {script}: {error.strerror}\n".encode())
        os._exit(error.errno or 1)


def _wait(script: int, lifeline: int) -> int:
    """The script's wait status; orphans are reaped on the way. No lifeline, no job."""
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    if lifeline >= 0:
        poll.register(lifeline, select.POLLIN)
    while True:
        if (status := _reap().get(script)) is not None:
            return status
        for ready, _ in poll.poll():
            if ready == wake:
                os.read(wake, 4096)
            else:
                poll.unregister(lifeline)
                _kill_all()


def _reap() -> dict[int, int]:
    """The wait statuses of the children that have ended, by process id."""
    ended = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    except ChildProcessError:
        pass  # no child is left
    return ended


def _kill_all() -> None:
    """SIGKILL to all that is left of the job: none leaves processes behind."""
    for process in descendants(os.getpid()):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a Path for each process costs the most here
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as stat:  # noqa: PTH123 - likewise
                state, parent = stat.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue  # it has ended meanwhile
        if state != b"Z":
            yield int(entry), int(parent)


def _write(path: Path, content: dict[str, Any]) -> None:
    """A file that is there as a whole, on the disk, or not at all."""
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
