"""What Slurm's commands are asked, and what becomes of their failures."""

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headgate.slurm import parse
from headgate.slurm.cli import CommandReader, command_variables
from headgate.slurm.model import ClusterUnavailable

SINCE = datetime(2026, 11, 21, 12, 0, 0, 500, tzinfo=UTC)


def reader(folder: Path, script: str, *, timeout: float = 10.0, limit: int = 1000) -> CommandReader:
    """A reader whose every command is this script."""
    for name in ("squeue", "sacct", "scontrol"):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    env = command_variables({"PATH": f"{folder}:/usr/bin:/bin", "LOG": str(folder / "log")})
    return CommandReader(
        env=env, timeout=timeout, limit=limit, before=["env", f"PATH={env['PATH']}"]
    )


def test_the_environment_leaves_nothing_to_chance():
    """Variables that change the commands' output are gone; language, times and lengths are set."""
    base = {
        "PATH": "/bin",
        "SQUEUE_FORMAT": "%j",
        "SACCT_FORMAT": "x",
        "SINFO_FORMAT": "x",
        "SLURM_CLUSTERS": "other",
        "SLURM_CONF": "/etc/a.conf",
        "SLURM_TIME_FORMAT": "relative",
    }
    assert command_variables(base, "/etc/b.conf") == {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/b.conf",
        "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
    }
    assert command_variables(base)["SLURM_CONF"] == "/etc/a.conf"


async def test_bulk_questions_ask_for_nothing_a_user_names(tmp_path: Path):
    """Neither names nor comments are in the fields of a question about everybody's jobs."""
    asked = reader(tmp_path, 'echo "$0 $*" >> $LOG')
    assert await asked.jobs() == []
    assert await asked.jobs(ended=True) == []
    first, second = (tmp_path / "log").read_text().lower().splitlines()
    for field in ("comment", "workdir", "command", ",name", " name"):
        assert field not in first
    assert "--states=all" not in first
    assert "--states=all" in second


async def test_names_are_asked_for_in_few_questions(tmp_path: Path):
    """A thousand names are one argument; each question has a mark of its own."""
    asked = reader(tmp_path, 'echo "$*" >> $LOG')
    names = [f"hg-{number}" for number in range(1500)] * 2
    assert await asked.jobs_named(names) == {}
    assert await asked.accounted(names, since=SINCE) == {}
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.count("hg-") for line in lines] == [1000, 500, 1000, 500]
    assert len({line.rpartition("|")[2] for line in lines[:2]}) == 2
    assert "--starttime=uts1795262400" in lines[2]
    assert f"--format={','.join(parse.ACCOUNTED_FIELDS)}" in lines[2]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
            "squeue: Unable to contact slurm controller",
        ),
        (
            "printf 'a: error: b\\na: error: Problem talking to the database\\n' >&2; exit 1",
            "squeue: Problem talking to the database",
        ),
        ("exit 3", "squeue: ended with status 3"),
        ("exec sleep 60", "did not end within 0.2 s"),
        ("exec yes", "wrote more than 1000 bytes"),
        ("echo 1", "squeue: the answer ends within a row"),
    ],
)
async def test_what_cannot_be_asked_is_unavailable(tmp_path: Path, script: str, words: str):
    """Refusals, lateness, floods and half answers are one condition, with words for people."""
    with pytest.raises(ClusterUnavailable, match=words):
        await reader(tmp_path, script, timeout=0.2 if "sleep" in script else 10.0).jobs()


async def test_commands_that_are_not_there_are_said(tmp_path: Path):
    """A machine without Slurm's commands has no cluster."""
    asked = CommandReader(env={"PATH": str(tmp_path)}, before=[str(tmp_path / "none")])
    with pytest.raises(ClusterUnavailable, match="cannot be run"):
        await asked.nodes()


async def test_a_ping_without_controllers_is_unavailable(tmp_path: Path):
    """An answer in which no controller appears says nothing."""
    with pytest.raises(ClusterUnavailable, match="bad configuration"):
        await reader(
            tmp_path, "echo 'scontrol: fatal: bad configuration' >&2; exit 1"
        ).controllers()
