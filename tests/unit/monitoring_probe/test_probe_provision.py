"""Provisioning: what is missing is added, in order; what is there stays."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from monitoring_probe.provision import ApiError, Wanted, provision

WANTED = Wanted("hpc", "HPC clusters", "192.0.2.1")
WRITING = ("import", "create", "update")


class Api:
    """A Zabbix of given answers that notes the calls; an error as answer is raised."""

    def __init__(self, answers: Mapping[str, Any], version: tuple[int, int] = (6, 0)) -> None:
        self.answers = answers
        self.release = version
        self.calls: list[tuple[str, Any]] = []

    def version(self) -> tuple[int, int]:
        """The release."""
        return self.release

    async def call(self, method: str, params: Mapping[str, Any] | Sequence[Any]) -> Any:
        """One method."""
        self.calls.append((method, params))
        answer = self.answers.get(method, [])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def writes(self) -> list[str]:
        """The methods that change something."""
        return [method for method, _ in self.calls if method.split(".")[1].startswith(WRITING)]


EMPTY = {
    "configuration.importcompare": {"templates": {"added": [{}]}},
    "hostgroup.create": {"groupids": ["7"]},
    "template.get": [{"templateid": "9"}],
}
COMPARE = "configuration.importcompare"


async def test_an_empty_zabbix_gets_everything() -> None:
    """Template first, then the group, then the host in both."""
    api = Api(EMPTY)
    lines = await provision(api, WANTED, "yaml", dry_run=False)
    assert [line.split(": ")[1] for line in lines] == ["imported", "created", "created"]
    writes = [name for name in api.writes() if name != COMPARE]
    assert writes == ["configuration.import", "hostgroup.create", "host.create"]
    host = api.calls[-1][1]
    assert host["groups"] == [{"groupid": "7"}]
    assert host["templates"] == [{"templateid": "9"}]
    assert host["macros"] == [{"macro": "{$HG.SENDERS}", "value": "192.0.2.1"}]


async def test_a_dry_run_changes_nothing() -> None:
    """It says what would be done."""
    api = Api(EMPTY)
    lines = await provision(api, WANTED, "yaml", dry_run=True)
    assert all(": would be " in line for line in lines)
    assert [name for name in api.writes() if name != COMPARE] == []


async def test_what_others_added_stays() -> None:
    """Groups and templates are added to, and of the macros only ours is touched."""
    host = {
        "hostid": "5",
        "name": "hpc",
        "groups": [{"groupid": "1"}],
        "parentTemplates": [{"templateid": "2"}],
        "macros": [{"macro": "{$OTHER}", "value": "x"}],
    }
    answers = EMPTY | {COMPARE: [], "hostgroup.get": [{"groupid": "7"}], "host.get": [host]}
    api = Api(answers)
    lines = await provision(api, WANTED, "yaml", dry_run=False)
    assert lines[2] == "host 'hpc': updated (groups, templates, senders)"
    changes = dict(api.calls)
    assert changes["host.update"] == {
        "hostid": "5",
        "groups": [{"groupid": "1"}, {"groupid": "7"}],
        "templates": [{"templateid": "2"}, {"templateid": "9"}],
    }
    assert changes["usermacro.create"]["hostid"] == "5"


async def test_newer_releases_have_template_groups() -> None:
    """The import's rules are named as the release names them."""
    for version, expected in (((6, 0), {"groups"}), ((7, 0), {"host_groups", "template_groups"})):
        api = Api(EMPTY, version)
        await provision(api, WANTED, "yaml", dry_run=False)
        rules = dict(api.calls)["configuration.import"]["rules"]
        assert {name for name in rules if name.endswith("groups")} == expected


async def test_a_refusal_says_at_which_step() -> None:
    """A user who may not make host groups learns that it is this."""
    api = Api(EMPTY | {"hostgroup.create": ApiError("No permissions to call hostgroup.create.")})
    with pytest.raises(ApiError, match=r"^host group 'HPC clusters': No permissions"):
        await provision(api, WANTED, "yaml", dry_run=False)
