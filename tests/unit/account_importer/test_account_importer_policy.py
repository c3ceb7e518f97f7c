"""Root's policy, and the executor that obeys it: no row, no plan and no order is believed."""

from pathlib import Path

import msgspec
import pytest

from account_importer.directory import Change, TargetError, mark
from account_importer.executor import Executor
from account_importer.plan import FORMAT, Plan
from account_importer.policy import Caps, Policy, load_policy, violations
from headgate.identity import Identity
from headgate.settings import SettingsError

ALICE = Identity("https://iam.example/", "1")
POLICY = Policy(
    realm="r",
    kinds=("create", "block"),
    uid_first=20000,
    uid_last=20009,
    shells=("/bin/sh",),
    caps=Caps(create=2, block=1),
)


def create(number: int = 0, **fields: object) -> Change:
    """A change the policy allows, but for the fields given."""
    identity = Identity(ALICE.iss, str(number))
    good = Change(  # noqa: S604 - a login shell is a field, nothing is run
        kind="create",
        iss=identity.iss,
        sub=identity.sub,
        account=f"alice{number}",
        uid=20000 + number,
        gid=20000 + number,
        home=f"/home/alice{number}",
        shell="/bin/sh",
        mark=mark("r", identity),
        version=0,
        reason="",
        user_name="alice",
        groups=("hpc",),
    )
    return msgspec.structs.replace(good, **fields)


def plan(*changes: Change, realm: str = "r") -> Plan:
    """A plan of these."""
    return Plan(FORMAT, realm, changes)


def test_a_plan_within_the_policy_passes() -> None:
    """Nothing is said against it."""
    assert violations(plan(create(0), create(1)), POLICY) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "unblock"}, "cap is 50|kind is not allowed"),
        ({"kind": "chown"}, "kind is not allowed"),
        ({"uid": 0, "gid": 0}, "out of range"),
        ({"uid": 999, "gid": 999}, "out of range"),
        ({"uid": 20010, "gid": 20010}, "out of range"),
        ({"gid": 0}, "gid must be the uid"),
        ({"account": "root", "home": "/home/root"}, "root is reserved"),
        ({"account": "a:b", "home": "/home/a:b"}, "not a unix account name"),
        ({"account": "-x", "home": "/home/-x"}, "not a unix account name"),
        ({"account": "a\nb", "home": "/home/a\nb"}, "not a unix account name"),
        ({"home": "/root"}, "home is elsewhere"),
        ({"home": "/home/../root"}, "home is elsewhere"),
        ({"shell": "/bin/evil"}, "shell '/bin/evil' is not allowed"),
        ({"mark": "headgate-0000000000000000"}, "mark is not this identity's"),
        ({"mark": "x:0:0"}, "mark is not this identity's"),
    ],
)
def test_each_field_of_a_change_is_checked(fields: dict[str, object], words: str) -> None:
    """Whatever an unprivileged process may have written, root checks it by its own file."""
    assert any(
        any(word in reason for word in words.split("|"))
        for reason in violations(plan(create(0, **fields)), POLICY)
    )


def test_caps_hold_for_a_whole_run() -> None:
    """Many small plans do not escape what one large plan may not do."""
    assert "cap is 2" in violations(plan(create(0), create(1), create(2)), POLICY)[0]
    assert "cap is 2" in violations(plan(create(2)), POLICY, [create(0), create(1)])[0]
    twice = create(1, account="alice0", home="/home/alice0")
    assert "two changes have the same account" in violations(plan(create(0), twice), POLICY)


def test_another_realm_is_refused() -> None:
    """A plan is for one user base."""
    assert "realm" in violations(plan(create(0), realm="other"), POLICY)[0]


class Notes:
    """Tools that only note what they were told to do."""

    def __init__(self) -> None:
        self.done: list[Change] = []
        self.fail = ""

    async def carry_out(self, change: Change) -> None:
        """Note it, or fail."""
        if self.fail:
            raise TargetError(self.fail)
        self.done.append(change)


async def order(executor: Executor, **fields: object) -> dict[str, object]:
    """Give an order; the answer."""
    answer = msgspec.json.decode(await executor.obey(msgspec.json.encode(fields)))
    assert isinstance(answer, dict)
    return answer


async def test_the_executor_does_only_changes_of_a_plan_it_checked() -> None:
    """A plan whose bytes are not its hash, or that breaks the policy, is refused whole."""
    tools = Notes()
    executor = Executor(policy=POLICY, tools=tools)
    good = plan(create(0), create(1))
    document, digest = good.canonical().decode(), good.digest
    assert (await order(executor, op="do", seq=0))["failed"]
    for bad_document, bad_digest in (
        (document.replace("20000", "20003"), digest),
        (document, "0" * 64),
        (plan(create(0, uid=0)).canonical().decode(), plan(create(0, uid=0)).digest),
    ):
        answer = await order(executor, op="begin", plan=bad_document, digest=bad_digest)
        assert answer["refused"]
        assert (await order(executor, op="do", seq=0))["failed"]
    assert await order(executor, op="begin", plan=document, digest=digest) == {
        "failed": "",
        "refused": [],
    }
    assert not (await order(executor, op="do", seq=1))["failed"]
    for seq in (-1, 2):
        assert (await order(executor, op="do", seq=seq))["failed"]
    assert tools.done == [good.changes[1]]


async def test_the_executor_answers_nonsense_and_failure_and_goes_on() -> None:
    """What is not an order is refused; a change that fails says why; the next one still works."""
    tools = Notes()
    executor = Executor(policy=POLICY, tools=tools)
    for line in (b"", b"nonsense\n", b'{"op": "rm"}\n', b'{"op": "do", "path": "/"}\n'):
        assert msgspec.json.decode(await executor.obey(line))["refused"]
    good = plan(create(0))
    await order(executor, op="begin", plan=good.canonical().decode(), digest=good.digest)
    tools.fail = "no room"
    assert (await order(executor, op="do", seq=0))["failed"] == "no room"
    tools.fail = ""
    assert not (await order(executor, op="do", seq=0))["failed"]


def test_a_policy_others_could_write_is_not_obeyed(tmp_path: Path) -> None:
    """A file, or a folder above it, that is open to others ends `apply` before it begins."""
    path = tmp_path / "policy.toml"
    path.write_text('realm = "r"\nkinds = []\nuid_first = 20000\nuid_last = 20009\nshells = []\n')
    path.chmod(0o666)
    with pytest.raises(SettingsError, match=r"policy\.toml: must be root's"):
        load_policy(path)
