"""Units, users and folders as they are shipped: they fit each other, the programs and the page."""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from token_translator import krl_fetch
from token_translator.nodes import lines
from token_translator.nodes.settings import Node

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging" / "systemd"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SERVICES = sorted(UNITS.glob("*.service"))
PROGRAMS = "/opt/headgate/bin/"
"""Where the documentation has the suite installed."""
NODE_PROGRAMS = {
    "/usr/libexec/headgate/headgate-krl-fetch": "krl_fetch.py of the release",
    "/usr/libexec/headgate/headgate-host-certificate": "node-setup --print host-certificate",
}
ROOTS = {"headgate-accounts-apply": 35, "headgate-host-certificate": 20}
"""What runs as root, and the exposure (systemd-analyze security, in tenths) that it may have."""
MOST_EXPOSED = 15
"""The same for everything else; systemd calls 50 medium, and a unit without any line has 96."""
VERBS = {"serve", "run", "apply", "retain"}


def settings(unit: Path) -> dict[str, list[str]]:
    """The lines of the section Service, by key; what an empty value resets is not looked at."""
    found: dict[str, list[str]] = {}
    section = unit.read_text(encoding="utf-8").split("[Service]")[1].split("\n[")[0]
    for line in section.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def command(unit: Path) -> list[str]:
    """The words of ExecStart."""
    (line,) = settings(unit)["ExecStart"]
    return shlex.split(line)


def name(path: Path) -> str:
    """The unit's name in a test's."""
    return path.stem


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The units with programs that exist here, whatever is installed."""
    folder = tmp_path_factory.mktemp("units")
    for unit in UNITS.iterdir():
        text = unit.read_text(encoding="utf-8")
        text = re.sub(r"^(ExecStart=)\S+", r"\1/bin/true", text, flags=re.MULTILINE)
        (folder / unit.name).write_text(text)
    return folder


@pytest.mark.site  # systemd-analyze is a package
def test_units_are_understood(here: Path) -> None:
    """`systemd-analyze verify` has no word against any unit or timer."""
    units = [str(path) for path in sorted(here.iterdir())]
    argv = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.site  # systemd-analyze is a package
@pytest.mark.parametrize("unit", SERVICES, ids=name)
def test_units_give_few_rights(here: Path, unit: Path) -> None:
    """No unit is more exposed than it has to be; `systemd-analyze security` counts."""
    most = ROOTS.get(unit.stem, MOST_EXPOSED)
    argv = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={most}"]
    done = subprocess.run(
        [*argv, str(here / unit.name)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout[-300:]


@pytest.mark.parametrize("unit", SERVICES, ids=name)
def test_units_run_what_there_is(
    unit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each program is one of ours, and knows the verb and the options that the unit gives it."""
    program, *words = command(unit)
    if program in NODE_PROGRAMS:
        return
    assert program.startswith(PROGRAMS)
    script = program.removeprefix(PROGRAMS)
    assert VERBS & set(words)
    module, _, function = PROJECT["project"]["scripts"][script].partition(":")
    monkeypatch.setattr(sys, "argv", [script, *words, "--help"])
    with pytest.raises(SystemExit) as ended:
        getattr(import_module(module), function)()
    assert ended.value.code == 0
    assert f"usage: {script}" in capsys.readouterr().out


@pytest.mark.parametrize("unit", SERVICES, ids=name)
def test_units_run_as_users_that_are_made(unit: Path) -> None:
    """Nobody is root but who has to be, and every user is one of sysusers.d."""
    (user,) = settings(unit)["User"]
    users = (ROOT / "packaging/sysusers.d/headgate.conf").read_text(encoding="utf-8")
    if unit.stem in ROOTS:
        assert user == "root"
        assert unit.read_text(encoding="utf-8").startswith("#")  # why
    else:
        assert re.search(rf"^u {user} ", users, re.MULTILINE)


def test_every_program_has_its_unit() -> None:
    """Whatever is installed runs from a unit, except what people type."""
    started = {command(unit)[0].rpartition("/")[2] for unit in SERVICES}
    assert started >= set(PROJECT["project"]["scripts"]) - {"headgate"}


def test_every_turn_has_its_timer() -> None:
    """What runs once has a timer, and what stays has none."""
    once = {unit.stem for unit in SERVICES if settings(unit)["Type"] == ["oneshot"]}
    assert once == {timer.stem for timer in UNITS.glob("*.timer")}


def test_folders_belong_to_users_that_are_made() -> None:
    """tmpfiles.d names users and groups of sysusers.d, and gives no file of settings to any."""
    users = (ROOT / "packaging/sysusers.d/headgate.conf").read_text(encoding="utf-8")
    made = {"root", *re.findall(r"^u (\S+)", users, re.MULTILINE)}
    text = (ROOT / "packaging/tmpfiles.d/headgate.conf").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        kind, path, mode, user, group = line.split()
        assert {user, group} <= made
        if kind == "z":
            assert (user, int(mode, 8) & 0o022) == ("root", 0)
            assert path.startswith("/etc/headgate/")


def test_state_folders_are_there_before_the_first_start() -> None:
    """`init` and `migrate` come before any unit's start, and find each service's own folder."""
    text = (ROOT / "packaging/tmpfiles.d/headgate.conf").read_text(encoding="utf-8")
    made = {tuple(line.split()) for line in text.splitlines() if line.startswith("d ")}
    wanted = set()
    for unit in SERVICES:
        service = settings(unit)
        (user,) = service["User"]
        for folder in service.get("StateDirectory", ()):
            (mode,) = service["StateDirectoryMode"]
            wanted.add(("d", f"/var/lib/{folder}", mode, user, user))
    assert wanted <= made
    assert {path for _, path, *_ in made if path.startswith("/var/")} == {
        path for _, path, *_ in wanted
    }


@pytest.mark.site  # the tools are of a package, and give folders away
def test_users_and_folders_are_made(tmp_path: Path) -> None:
    """systemd-sysusers and systemd-tmpfiles make them, without a word of complaint."""
    root = tmp_path / "root"
    for folder in ("etc/headgate", "run"):
        (root / folder).mkdir(parents=True)
    (root / "etc/headgate/tokens.toml").touch(mode=0o666)
    for tool, words in (("sysusers", []), ("tmpfiles", ["--create"])):
        source = ROOT / "packaging" / f"{tool}.d" / "headgate.conf"
        argv = [f"systemd-{tool}", f"--root={root}", *words]
        argv.append("-")
        done = subprocess.run(
            argv, input=source.read_bytes(), check=False, capture_output=True, timeout=60
        )
        said = done.stderr.decode().splitlines()
        assert (done.returncode, [line for line in said if "Creating" not in line]) == (0, [])
    uids = dict(re.findall(r"^(\S+?):x:(\d+):", (root / "etc/passwd").read_text(), re.MULTILINE))
    groups = re.findall(r"^(\S+?):x:(\d+):(.*)$", (root / "etc/group").read_text(), re.MULTILINE)
    gids = {name: gid for name, gid, _ in groups}
    assert "headgate-signer" in {name: members for name, _, members in groups}["headgate-tokens"]
    door = (root / "run/headgate-signer").stat()
    assert (str(door.st_uid), str(door.st_gid)) == (
        uids["headgate-signer"],
        gids["headgate-tokens"],
    )
    assert door.st_mode & 0o777 == 0o750
    state = (root / "var/lib/headgate-signer").stat()
    assert (str(state.st_uid), state.st_mode & 0o777) == (uids["headgate-signer"], 0o700)
    settings_ = (root / "etc/headgate/tokens.toml").stat()
    assert (settings_.st_uid, str(settings_.st_gid)) == (0, gids["headgate-tokens"])
    assert settings_.st_mode & 0o777 == 0o640


def test_units_are_in_the_wheel() -> None:
    """Whoever installs the package has them below share/headgate."""
    shared = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    for folder in ("systemd", "sysusers.d", "tmpfiles.d"):
        assert shared[f"packaging/{folder}"] == f"share/headgate/{folder}"


def test_node_setup_prints_the_unit_that_is_shipped(tmp_path: Path) -> None:
    """There is one unit for a node's timer; what is the node's own is in the options file."""
    tokens = "https://tokens.example.org"
    node = Node(realm="main", uid_first=20000, uid_last=29999, tokens=tokens, krl_max_age=1800)
    _, *files = re.split(r"^# ---- (\S+).*\n", lines.units(node), flags=re.MULTILINE)
    printed = dict(zip(files[::2], files[1::2], strict=True))
    for name_ in ("headgate-krl-fetch.service", "headgate-krl-fetch.timer"):
        shipped = (UNITS / name_).read_text(encoding="utf-8")
        unit = printed[f"/etc/systemd/system/{name_}"]
        assert _without_comments(unit) == _without_comments(shipped)
    path = tmp_path / "options"
    path.write_text(printed["/etc/headgate/krl-fetch.options"])
    read = krl_fetch._parser().parse_args([f"@{path}"])
    assert (read.url, read.file) == (f"{tokens}/v1/krl", node.revoked_keys)
    assert (read.user_ca, read.alarm_after) == (node.user_ca, 1800.0)


def _without_comments(unit: str) -> str:
    return re.sub(r"^#.*\n", "", unit, flags=re.MULTILINE).strip()
