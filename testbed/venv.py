"""The site's Python: one venv for what we depend on, one per state of our own sources on top."""

import asyncio
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from headgate.command import run
from headgate.settings import command_environment
from testbed.instances import ROOT, locked
from testbed.namespace import interpreter

log = structlog.get_logger(__name__)

PACKAGES = (
    "headgate",
    "gateway",
    "token_translator",
    "account_importer",
    "info_provider",
    "monitoring_probe",
    "testbed",
)
_PIP_SECONDS = 900.0
_KEPT = 3


def repository() -> Path:
    """The checkout that this testbed is part of."""
    return Path(__file__).resolve().parent.parent


async def ensure_venv(repo: Path) -> Path:
    """The folder of a venv that everybody may execute, with the suite, testbed and udocker in it.

    What is unchanged since the last time is not installed again. A venv in use is never changed:
    other sources get another one. Safe to call twice at once.

    Raises:
        CommandError: an installation failed; with pip's words.
    """
    base = ROOT / f"venv-{_digest(repo, _dependency_files(repo))}"
    own = ROOT / f"{base.name}-{_digest(repo, _source_files(repo))}"
    if not (own / "complete").exists():
        await asyncio.to_thread(_lock_and_build, repo, base, own)
    return own


def _lock_and_build(repo: Path, base: Path, own: Path) -> None:
    # In a thread with its own loop: waiting for another's lock must not stop ours.
    with locked(ROOT / "venv.lock"):
        asyncio.run(_build(repo, base, own))


async def _build(repo: Path, base: Path, own: Path) -> None:
    if not (base / "complete").exists():
        log.info("installing_dependencies", venv=str(base))
        await _fresh(base, "--clear")
        await _dependencies(repo, base)
        await _finish(base)
    if not (own / "complete").exists():
        log.info("installing_headgate", venv=str(own))
        await _fresh(own, "--clear", "--without-pip")
        packages = _site_packages(own)
        (packages / "dependencies.pth").write_text(f"{_site_packages(base)}\n", encoding="utf-8")
        await _pip(base, "--python", str(own / "bin/python"), *_ITSELF, str(repo))
        shutil.copytree(
            repo / "testbed",
            packages / "testbed",
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )
        for tool in ("udocker",):
            (own / "bin" / tool).symlink_to(base / "bin" / tool)
        await _finish(own)
    _sweep(base, own)


_ITSELF = ("install", "--no-deps", "--no-build-isolation")


async def _dependencies(repo: Path, base: Path) -> None:
    constraints = repo / "constraints" / "demo.txt"
    if constraints.exists():
        await _pip(base, "install", "--require-hashes", "-r", str(constraints))
        return
    # A checkout without constraints: what pyproject.toml allows, newest.
    await _pip(base, "install", "hatchling", f"{repo}[demo]")
    await _pip(base, "uninstall", "--yes", "headgate")


async def _fresh(venv: Path, *options: str) -> None:
    (await run((interpreter(), "-m", "venv", *options, str(venv)), timeout=_PIP_SECONDS)).checked()


async def _pip(venv: Path, *arguments: str) -> None:
    argv = (str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check", *arguments)
    (await run(argv, timeout=_PIP_SECONDS, env=command_environment())).checked()


async def _finish(venv: Path) -> None:
    """Compiled and readable by everybody, whatever our umask is; only then complete."""
    packages = str(_site_packages(venv))
    # Without __pycache__ every process compiles again: users may not write there.
    compile_all = (str(venv / "bin/python"), "-m", "compileall", "-q", packages)
    (await run(compile_all, timeout=_PIP_SECONDS)).checked()
    (await run(("chmod", "-R", "a+rX", str(venv)), timeout=_PIP_SECONDS)).checked()
    (venv / "complete").touch()


def _site_packages(venv: Path) -> Path:
    return next((venv / "lib").glob("python3.*/site-packages"))


def _dependency_files(repo: Path) -> Iterator[Path]:
    constraints = repo / "constraints" / "demo.txt"
    yield constraints if constraints.exists() else repo / "pyproject.toml"


def _source_files(repo: Path) -> Iterator[Path]:
    yield repo / "pyproject.toml"
    for package in PACKAGES:
        for path in sorted((repo / package).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                yield path


def _digest(repo: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256(str(Path(interpreter()).resolve()).encode())
    for path in files:
        digest.update(f"\0{path.relative_to(repo)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _sweep(base: Path, own: Path) -> None:
    """Remove venvs of older sources that no live site uses, but the newest few."""
    used = {path.resolve() for path in (ROOT / "sites").glob("*/venv")} | {own, base}
    old = sorted(
        (path for path in ROOT.glob("venv-*-*") if path not in used),
        key=lambda path: path.stat().st_mtime,
    )
    for path in old[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    needed = {path.name.rpartition("-")[0] for path in ROOT.glob("venv-*-*")}
    for path in ROOT.glob("venv-*"):
        if path.name.count("-") == 1 and path.name not in needed:
            shutil.rmtree(path, ignore_errors=True)
