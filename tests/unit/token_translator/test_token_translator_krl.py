"""Our revocation lists before the real ssh-keygen: it reads in them what we meant, and no more."""

import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from token_translator.signer.krl import MAX_BITMAP_BITS, NEVER, Range, RevocationList
from token_translator.signer.revocations import Now

SERIAL = re.compile(r"^serial: (\d+)(?:-(\d+))?$", re.MULTILINE)


@dataclass(frozen=True)
class Keys:
    """Two authorities and a person's key, by ssh-keygen."""

    folder: Path

    def line(self, name: str) -> str:
        """A public key's line."""
        return (self.folder / f"{name}.pub").read_text().strip()

    def fingerprint(self, name: str) -> str:
        """As ssh-keygen shows it."""
        argv = ["ssh-keygen", "-l", "-f", str(self.folder / f"{name}.pub")]
        return subprocess.check_output(argv, text=True).split()[1]

    def certificate(self, serial: int, *, ca: str = "ca") -> Path:
        """A certificate with that serial."""
        path = self.folder / f"cert-{ca}-{serial}"
        path.with_suffix(".pub").write_text(self.line("key"))
        argv = ["ssh-keygen", "-q", "-s", str(self.folder / ca), "-I", "x", "-n", "hg:a:b"]
        subprocess.run([*argv, "-z", str(serial), f"{path}.pub"], check=True)
        return Path(f"{path}-cert.pub")

    def write(self, content: bytes) -> Path:
        """A list as a file."""
        path = self.folder / "krl"
        path.write_bytes(content)
        return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Made once."""
    folder = tmp_path_factory.mktemp("krl")
    for name in ("ca", "old_ca", "key", "other"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True)
    return Keys(folder)


def revoked_now(
    serials: Iterable[Range] = (), *, keys: Sequence[str] = (), authorities: Sequence[str] = ()
) -> Now:
    """What is revoked."""
    return Now(9, tuple(serials), tuple(keys), tuple(authorities))


def shown(path: Path) -> str:
    """What ssh-keygen reads."""
    return subprocess.check_output(["ssh-keygen", "-Q", "-l", "-f", str(path)], text=True)


def revokes(path: Path, *files: Path) -> list[bool]:
    """What ssh-keygen says of keys or certificates."""
    argv = ["ssh-keygen", "-Q", "-f", str(path), *map(str, files)]
    ended = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert ended.returncode in {0, 1}, ended.stderr
    return [line.endswith("REVOKED") for line in ended.stdout.splitlines()]


def ranges_of(serials: Iterable[int]) -> list[Range]:
    """Closed, disjoint, ascending ranges."""
    found: list[Range] = []
    for serial in sorted(set(serials)):
        if found and found[-1][1] == serial - 1:
            found[-1] = (found[-1][0], serial)
        else:
            found.append((serial, serial))
    return found


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Neighbours joined."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and found[-1][1] >= first - 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def read_back(text: str) -> list[Range]:
    """The serials that ssh-keygen lists."""
    return merged((int(first), int(last or first)) for first, last in SERIAL.findall(text))


START = st.one_of(
    st.integers(1, 3000), st.integers(2**31, 2**31 + 300), st.integers(2**63 - 400, 2**63 - 1)
)
RANGES = st.lists(st.tuples(START, st.one_of(st.just(0), st.integers(0, 200))), max_size=60)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(RANGES)
def test_ssh_keygen_lists_exactly_the_serials_we_wrote(keys: Keys, drawn: list[Range]):
    """Whatever ranges there are, as lists, ranges and bitmaps they are the same serials."""
    wanted = merged((first, min(first + more, 2**63 - 1)) for first, more in drawn)
    made = RevocationList.of(revoked_now(wanted), [keys.line("ca")])
    assert read_back(shown(keys.write(made.encode()))) == wanted


@pytest.mark.parametrize(
    "serials",
    [
        range(1, 3 * MAX_BITMAP_BITS, 2),
        [*range(1, MAX_BITMAP_BITS + 1, 3), MAX_BITMAP_BITS, MAX_BITMAP_BITS + 1],
        [1, 2**63 - 1],
        [*range(2**63 - 900, 2**63, 7)],
    ],
)
def test_bitmaps_end_where_openssh_ends_them(keys: Keys, serials: Sequence[int]):
    """What is longer than one bitmap may be is cut into several, up to the last serial."""
    wanted = ranges_of(serials)
    made = RevocationList.of(revoked_now(wanted), [keys.line("ca")])
    assert read_back(shown(keys.write(made.encode()))) == wanted


def test_a_certificate_is_revoked_by_its_serial(keys: Keys):
    """The list names the serials of our authorities; nobody else's certificates are touched."""
    made = RevocationList.of(revoked_now([(5, 5), (7, 9)]), [keys.line("ca")])
    path = keys.write(made.encode())
    files = [keys.certificate(serial) for serial in (4, 5, 6, 7, 9, 10)]
    assert revokes(path, *files) == [False, True, False, True, True, False]
    foreign = keys.certificate(5, ca="old_ca")
    assert revokes(path, foreign, keys.folder / "key.pub") == [False, False]


def test_both_of_two_authorities(keys: Keys):
    """During a rotation a serial is revoked whichever of the two has signed it."""
    lines = [keys.line("ca"), keys.line("old_ca")]
    path = keys.write(RevocationList.of(revoked_now([(5, 5)]), lines).encode())
    assert revokes(path, keys.certificate(5), keys.certificate(5, ca="old_ca")) == [True, True]


def test_a_key_by_its_fingerprint(keys: Keys):
    """A revoked key is no good, alone or in any certificate."""
    now = revoked_now(keys=[keys.fingerprint("key")])
    path = keys.write(RevocationList.of(now, [keys.line("ca")]).encode())
    files = [keys.folder / "key.pub", keys.folder / "other.pub", keys.certificate(6)]
    assert revokes(path, *files) == [True, False, True]


def test_an_authority_takes_its_certificates_with_it(keys: Keys):
    """With a revoked CA key every certificate it ever signed is revoked, and no other."""
    now = revoked_now(authorities=[keys.line("old_ca")])
    path = keys.write(RevocationList.of(now, [keys.line("ca")]).encode())
    files = [keys.certificate(6, ca="old_ca"), keys.certificate(6), keys.folder / "key.pub"]
    assert revokes(path, *files) == [True, False, False]


def test_the_same_is_the_same_bytes(keys: Keys):
    """Replicas make one list of one state, in whatever order the signer names keys."""
    one = revoked_now(keys=[keys.fingerprint("key"), keys.fingerprint("other")])
    other = revoked_now(keys=[keys.fingerprint("other"), keys.fingerprint("key")])
    lists = [RevocationList.of(now, [keys.line("ca")]).encode() for now in (one, other)]
    assert lists[0] == lists[1]
    assert (
        RevocationList(0, NEVER).encode()
        == RevocationList.of(Now(0, (), (), ()), [keys.line("ca")]).encode()
    )


@pytest.mark.parametrize(
    ("serials", "most"),
    [
        (range(100_001, 110_001), 200),
        (range(100_001, 120_001, 2), 3_000),
        ([serial for serial in range(100_001, 115_001) if serial % 3], 2_300),
        (range(100_001, 10_100_001, 1_000), 81_000),
    ],
    ids=["in a row", "every other", "two of three", "far apart"],
)
def test_ten_thousand_serials_are_small_and_quick(serials: Sequence[int], most: int, keys: Keys):
    """A busy site's list stays small, and takes milliseconds to make."""
    wanted = ranges_of(serials)
    before = time.process_time()
    content = RevocationList.of(revoked_now(wanted), [keys.line("ca")]).encode()
    spent = time.process_time() - before
    assert len(content) <= most
    assert spent < 0.25
    assert read_back(shown(keys.write(content))) == wanted
