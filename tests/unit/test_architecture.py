"""The rules of the house that a linter does not know, held on every file of the repository."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {
    "gateway": "gateway",
    "token_translator": "tokens",
    "account_importer": "accounts",
    "info_provider": "info",
    "monitoring_probe": "probe",
}
"""Each service and the extra that brings what it needs."""
SHIPPED = ("headgate", *SERVICES)
OURS = (*SHIPPED, "testbed", "bench", "tests")

DIRECTORIES = {*SHIPPED, "testbed", "tests", "bench", "constraints", "docs", "packaging"}
LONGEST = 400
LONGER = {
    # Login nodes get one root-owned file that imports nothing of ours,
    # and acts on jobs and on their files.
    "gateway/session/headgate_session.py": 900,
}
READ_THE_ENVIRONMENT = {
    "headgate/settings.py",  # hands it to commands
    "headgate/systemd.py",  # the service manager's protocol is a variable
    "headgate/cli/__main__.py",  # a person's own command: XDG folders, token variables
    "gateway/session/headgate_session.py",  # sshd's protocol is a variable
    "headgate/slurm/memory/shim.py",  # stands in for commands whose settings are variables
}
VAGUE = {"base", "common", "helper", "helpers", "manager", "misc", "tools", "util", "utils"}
PART_OF = {"yarl": "aiohttp", "multidict": "aiohttp", "requests": "pyzabbix"}
"""Packages whose classes are another's documented interface, and come with it."""
OPTIONAL = {"pyslurm", "pkcs11", "psycopg"}
"""What an extra of its own brings: imported late, by one adapter, where a site asks for it."""
SHARED_MODULES = 20
SHARED_LINES = 2500


@cache
def sources() -> tuple[Path, ...]:
    """Every Python file of ours."""
    return tuple(sorted(path for name in OURS for path in (ROOT / name).rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name(path: Path) -> str:
    """The path as the repository says it."""
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> str:
    """The import name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def requires(extra: str) -> frozenset[str]:
    """The distributions that pyproject.toml names for an extra and its base ("": the base)."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wishes = list(document["project"]["dependencies"])
    wishes += document["project"]["optional-dependencies"][extra] if extra else []
    found: set[str] = set()
    for wish in wishes:
        if of_ours := re.match(r"headgate\[(.*)\]", wish):
            found = found.union(*(requires(part) for part in of_ours[1].split(",")))
        else:
            found.add(required(wish))
    return frozenset(found)


def required(wish: str) -> str:
    """The distribution's normalised name in a requirement (PEP 508, PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", wish, maxsplit=1)[0]).lower()


def imported(path: Path) -> Iterator[str]:
    """Every module that a file names in an import, wherever in the file it stands."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def reached(package: str) -> frozenset[Path]:
    """A package's files and all of ours that they import, and those import, and so on."""
    files = {module(path): path for path in sources()}
    waiting = [path for known, path in files.items() if known.split(".")[0] == package]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for target in imported(path):
            parts = target.split(".")
            parents = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
            waiting += [files[parent] for parent in parents if parent in files]
    return frozenset(found)


def test_directories_are_the_ones_of_the_design() -> None:
    """The top level holds what the design names, and nothing else grows there."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    found = {
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and not path.name.startswith(".") and f"/{path.name}/" not in ignored
    }
    assert found - DIRECTORIES - {"__pycache__"} == set()


@pytest.mark.parametrize("path", sources(), ids=name)
def test_module_says_what_it_is_for(path: Path) -> None:
    """A module opens with a sentence, and stays short enough to be read in one go."""
    assert ast.get_docstring(tree(path)), "a module opens with one sentence saying what it is for"
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= LONGER.get(name(path), LONGEST)


def test_module_names_are_terms_of_the_field() -> None:
    """No module is a drawer for everything."""
    assert [name(path) for path in sources() if path.stem in VAGUE] == []


def test_environment_is_read_in_few_places() -> None:
    """Settings come from files: only the listed modules look at the environment."""
    found = {
        name(path)
        for path in sources()
        if path.relative_to(ROOT).parts[0] in SHIPPED
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"})
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    }
    assert found - READ_THE_ENVIRONMENT == set()


def test_pyslurm_is_imported_by_its_adapter_alone() -> None:
    """Importing pyslurm without a Slurm ends the process: only its adapter does, in a function."""
    for path in sources():
        if path.relative_to(ROOT).parts[0] == "tests":
            continue
        if any(target.split(".")[0] == "pyslurm" for target in imported(path)):
            assert name(path) == "headgate/slurm/pyslurm.py"
            at_the_top = [node for node in tree(path).body if isinstance(node, ast.Import)]
            assert "pyslurm" not in {alias.name for node in at_the_top for alias in node.names}


def test_nothing_is_left_for_later() -> None:
    """What is missing is said in the documents, not noted in the code."""
    later = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    found = [name(path) for path in sources() if later.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_every_silenced_warning_has_a_reason() -> None:
    """A linter or type checker is silenced for one named rule, with the reason beside it."""
    silenced = re.compile(r"#\s*(?:noqa|type:\s*ignore)\b(.*)")
    reasoned = re.compile(
        r"(?::\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*|\[[a-z, -]+\])\s*(?:#|-|:)\s*\w+"
    )
    bare = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (found := silenced.search(line)) and not reasoned.match(found[1])
        if path != Path(__file__)
    ]
    assert bare == []


def test_every_test_says_what_it_shows() -> None:
    """Each test has a sentence of the behaviour it holds."""
    silent = [
        f"{name(path)}: {node.name}"
        for path in sources()
        if path.name.startswith("test_")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


def test_tests_on_the_real_site_are_marked() -> None:
    """`make test SITE=embedded` leaves out what needs the real site: such tests carry the mark."""
    unmarked = [
        name(path)
        for path in sources()
        if path.relative_to(ROOT).parts[:2] in {("tests", "integration"), ("tests", "acceptance")}
        and path.name.startswith("test_")
        and any(isinstance(node, ast.arg) and node.arg == "site" for node in ast.walk(tree(path)))
        and not re.search(r"\bmark\.site\b", path.read_text(encoding="utf-8"))
    ]
    assert unmarked == []


def test_test_files_are_no_package_and_have_their_own_names() -> None:
    """Test files are found by their own names, wherever they lie."""
    files = [path.name for path in sources() if path.relative_to(ROOT).parts[0] == "tests"]
    assert "__init__.py" not in files
    tests = sorted(file for file in files if file.startswith("test_"))
    assert tests == sorted(set(tests))


def test_shared_package_stays_small() -> None:
    """The shared package has a budget; Slurm, the client and the command count for themselves."""
    modules = [path for path in sources() if path.parent == ROOT / "headgate"]
    assert len(modules) <= SHARED_MODULES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules) <= (
        SHARED_LINES
    )


@pytest.mark.parametrize(
    "path",
    [p for p in sources() if p.parent == ROOT / "headgate" and p.name != "__init__.py"],
    ids=name,
)
def test_shared_module_is_shared(path: Path) -> None:
    """What is in the shared package is needed by two services or more."""
    assert len([service for service in SERVICES if path in reached(service)]) >= 2


@pytest.mark.parametrize(
    ("package", "extra"), [("headgate", ""), *SERVICES.items(), ("testbed", "demo")]
)
def test_extra_declares_what_its_service_imports(package: str, extra: str) -> None:
    """Each extra, alone, brings what its service imports: nothing comes in by way of another."""
    distributions = packages_distributions()
    undeclared = set()
    for path in reached(package):
        for target in imported(path):
            top = target.split(".")[0]
            if top in sys.stdlib_module_names or top in OURS or top in OPTIONAL:
                continue
            top = PART_OF.get(top, top)
            if not requires(extra) & {required(owner) for owner in distributions.get(top, [top])}:
                undeclared.add(f"{name(path)}: {top}")
    assert undeclared == set()


@pytest.mark.parametrize(
    ("file", "extra"),
    [("base", ""), *((extra, extra) for extra in (*SERVICES.values(), "demo", "all")), ("dev", "")],
)
def test_constraints_pin_everything_and_name_no_place(file: str, extra: str) -> None:
    """Each extra has its exact versions with hashes, the build backend too, and no address."""
    text = (ROOT / "constraints" / f"{file}.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|^\s*-(?!-hash=sha256:[0-9a-f]{64}( \\)?$)|@", text, re.MULTILINE)
    pins = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))
    assert {"hatchling", "editables", *requires(extra)} - set(pins) == set()
    hashed = re.findall(r"^[a-z0-9.-]+==[^\n]*\\\n    --hash=", text, re.MULTILINE)
    assert len(hashed) == len(pins)


def test_constraints_agree() -> None:
    """One version of a package in all constraints files: the tested one is the installed one."""
    versions: dict[str, set[str]] = {}
    for path in (ROOT / "constraints").glob("*.txt"):
        for package, version in re.findall(
            r"^([a-z0-9.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            versions.setdefault(package, set()).add(version)
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}
