"""The spool: whole runs, durable, bounded, whatever happens in between."""

import errno
import multiprocessing
import os
import signal
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monitoring_probe.spool import KEPT_ASIDE, Busy, Spool, Unreadable


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """An empty one, bounded to a day and a megabyte."""
    (tmp_path / "spool").mkdir()
    return Spool(tmp_path / "spool", max_age=86400, max_bytes=1_000_000)


def test_what_is_put_is_read_back(spool: Spool, make: SimpleNamespace) -> None:
    """In order of time, private, nothing else in the directory."""
    spool.put([make.value(2)])
    first = spool.put([make.value(1), make.value(1, "other")])
    assert [spool.read(run)[0].clock for run in spool.runs()] == [
        make.value(1).clock,
        make.value(2).clock,
    ]
    assert spool.read(first) == [make.value(1), make.value(1, "other")]
    assert first.stat().st_mode & 0o777 == 0o600
    spool.done(first)
    assert len(spool.runs()) == 1


def test_backlog(spool: Spool, make: SimpleNamespace) -> None:
    """Runs, bytes and the oldest one's age."""
    assert spool.backlog(make.noon).runs == 0
    spool.put([make.value(0)])
    backlog = spool.backlog(make.noon + timedelta(seconds=60))
    assert backlog.runs == 1
    assert backlog.size > 50
    assert 59 <= backlog.age <= 61


def test_old_runs_are_dropped_and_counted(spool: Spool, make: SimpleNamespace) -> None:
    """What is over the age goes; the count survives the process."""
    spool.put([make.value(0)])
    spool.put([make.value(90_000)])
    now = make.noon + timedelta(seconds=90_000)
    spool.tidy(now)
    assert len(spool.runs()) == 1
    assert spool.backlog(now).dropped == 1


def test_the_oldest_go_when_there_is_too_much(tmp_path: Path, make: SimpleNamespace) -> None:
    """Whole runs, from the old end."""
    spool = Spool(tmp_path, max_age=86400, max_bytes=250)
    for second in range(5):
        spool.put([make.value(second)])
    spool.tidy(make.noon)
    kept = [spool.read(run)[0].clock for run in spool.runs()]
    size = spool.runs()[0].stat().st_size
    assert kept == [make.value(second).clock for second in range(5 - 250 // size, 5)]


def test_one_at_a_time(spool: Spool) -> None:
    """The second finds it busy; when the first is gone it is free."""
    with spool.held(), pytest.raises(Busy), spool.held():
        pytest.fail("held twice")
    with spool.held():
        pass


@pytest.mark.parametrize(
    "content", [b"", b"not json\n", b'{"host":1}\n', b'{"host":"h"}\n', b"\xff\xfe"]
)
def test_a_bad_file_is_recognised(
    spool: Spool, tmp_path: Path, make: SimpleNamespace, content: bytes
) -> None:
    """It is not sent in parts; it goes aside."""
    run = spool.put([make.value()])
    run.write_bytes(content)
    with pytest.raises(Unreadable):
        spool.read(run)
    spool.put_aside(run, "bad")
    assert spool.runs() == []
    assert len(list((tmp_path / "spool" / "bad").iterdir())) == 1


def test_what_is_aside_is_bounded(spool: Spool, tmp_path: Path, make: SimpleNamespace) -> None:
    """The newest few are kept for somebody to look at."""
    for second in range(KEPT_ASIDE + 3):
        spool.put_aside(spool.put([make.value(second)]), "rejected")
    assert len(list((tmp_path / "spool" / "rejected").iterdir())) == KEPT_ASIDE


def test_a_full_disk_drops_the_oldest_once(
    spool: Spool, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new run takes the place of the oldest."""
    spool.put([make.value(0)])
    spool.put([make.value(1)])
    real, failures = os.fsync, [errno.ENOSPC]

    def fsync(descriptor: int) -> None:
        if failures:
            raise OSError(failures.pop(), "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    spool.put([make.value(2)])
    kept = [spool.read(run)[0].clock for run in spool.runs()]
    assert kept == [make.value(1).clock, make.value(2).clock]
    assert spool.backlog(make.noon).dropped == 1


def test_a_disk_that_stays_full(
    spool: Spool, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the caller's to deal with; nothing half written is left."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        spool.put([make.value()])
    assert spool.runs() == []


def _killed_at(step: str, path: Path, value: Any) -> None:
    """Put a run and die by SIGKILL right before `step`."""

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if step == "rename":
        Path.replace = die  # type: ignore[method-assign,assignment] # this process ends at once
    else:
        setattr(os, step, die)
    Spool(path, max_age=86400, max_bytes=1_000_000).put([value])


@pytest.mark.parametrize("step", ["open", "fsync", "rename"])
def test_a_kill_leaves_a_whole_run_or_none(
    spool: Spool, tmp_path: Path, make: SimpleNamespace, step: str
) -> None:
    """Killed before it is in place, the run is not there, and the rest is tidied away."""
    before = spool.put([make.value(0)])
    child = multiprocessing.get_context("fork").Process(
        target=_killed_at, args=(step, tmp_path / "spool", make.value(1))
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    spool.tidy(make.noon)
    assert spool.runs() == [before]
    assert not list((tmp_path / "spool").glob("*.new"))


def test_a_kill_after_the_rename_keeps_the_run(
    spool: Spool, tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between rename and the directory's sync the run is there, and whole."""

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("monitoring_probe.spool.sync_directory", fail)
    with pytest.raises(KeyboardInterrupt):
        spool.put([make.value()])
    [run] = Spool(tmp_path / "spool", max_age=1, max_bytes=1).runs()
    assert spool.read(run) == [make.value()]
