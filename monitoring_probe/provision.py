"""Making Zabbix ready for the probe: template, host group, host; again and again without harm."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from monitoring_probe.template import NAME, SENDERS_MACRO

_BOTH = {"createMissing": True, "updateExisting": True}
_EXACTLY = {"createMissing": True, "updateExisting": True, "deleteMissing": True}
SIX_TWO = (6, 2)
"""From this release on templates have groups of their own, and hosts have host groups."""


class ApiError(Exception):
    """Zabbix refused or could not be asked; in its own words, with what we were about to do."""


class Api(Protocol):
    """The web API after login."""

    def version(self) -> tuple[int, int]:
        """The release, major and minor."""

    async def call(self, method: str, params: Mapping[str, Any] | Sequence[Any]) -> Any:  # noqa: ANN401 - JSON
        """The result of a method; raises `ApiError`."""


class Login(Protocol):
    """The web API before login."""

    async def login(self, *, user: str = "", password: str = "", token: str = "") -> None:
        """With an API token, else as a user; raises `ApiError`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What must be there: the host (technical and visible name), its group, who may send."""

    host: str
    host_group: str
    senders: str
    visible_name: str = ""


@dataclass
class _Report:
    dry_run: bool
    lines: list[str] = field(default_factory=list)

    def say(self, what: str, done: str) -> bool:
        """Note a change and say whether to make it."""
        self.lines.append(f"{what}: {f'would be {done}' if self.dry_run else done}")
        return not self.dry_run

    def same(self, what: str) -> None:
        self.lines.append(f"{what}: as wanted")


async def provision(api: Api, wanted: Wanted, template: str, *, dry_run: bool) -> list[str]:
    """Bring template, group and host about; a line per thing says what was, or would be, done.

    Only what is missing is added: other groups, templates and macros of the host stay.

    Raises:
        ApiError: with the step that failed. Creating a host group takes a Super admin.
    """
    report = _Report(dry_run)
    await _template(api, template, report)
    group = await _group(api, wanted.host_group, report)
    await _host(api, wanted, group, report)
    return report.lines


@contextmanager
def _step(what: str) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise ApiError(f"{what}: {error}") from error


async def _template(api: Api, source: str, report: _Report) -> None:
    what = f"template {NAME!r}"
    request = {"format": "yaml", "source": source, "rules": _rules(api.version())}
    with _step(what):
        if not await api.call("configuration.importcompare", request):
            report.same(what)
        elif report.say(what, "imported"):
            await api.call("configuration.import", request)


def _rules(version: tuple[int, int]) -> dict[str, dict[str, bool]]:
    """What an import may do; our template alone, and in it also remove what we no longer have."""
    groups = ("template_groups", "host_groups") if version >= SIX_TWO else ("groups",)
    return {
        **dict.fromkeys(groups, _BOTH),
        "templates": _BOTH,
        "valueMaps": _EXACTLY,
        "items": _EXACTLY,
        "discoveryRules": _EXACTLY,
        "triggers": _EXACTLY,
    }


async def _group(api: Api, name: str, report: _Report) -> str:
    what = f"host group {name!r}"
    with _step(what):
        found = await api.call("hostgroup.get", {"filter": {"name": [name]}})
        if found:
            report.same(what)
            return str(found[0]["groupid"])
        if report.say(what, "created"):
            created = await api.call("hostgroup.create", {"name": name})
            return str(created["groupids"][0])
    return ""


async def _host(api: Api, wanted: Wanted, group: str, report: _Report) -> None:
    what = f"host {wanted.host!r}"
    with _step(what):
        templates = await api.call("template.get", {"filter": {"host": [NAME]}})
        template = str(templates[0]["templateid"]) if templates else ""
        found = await api.call(
            "host.get",
            {
                "filter": {"host": [wanted.host]},
                "output": ["hostid", "name"],
                # Renamed in 6.2; 7.2 no longer knows the old name.
                ("selectHostGroups" if api.version() >= SIX_TWO else "selectGroups"): ["groupid"],
                "selectParentTemplates": ["templateid"],
                "selectMacros": ["macro", "value"],
            },
        )
        if found:
            await _update(api, wanted, found[0], (group, template), report)
        elif report.say(what, "created"):
            await api.call(
                "host.create",
                {
                    "host": wanted.host,
                    "name": wanted.visible_name or wanted.host,
                    "groups": [{"groupid": group}],
                    "templates": [{"templateid": template}],
                    "macros": [{"macro": SENDERS_MACRO, "value": wanted.senders}],
                },
            )


async def _update(
    api: Api,
    wanted: Wanted,
    host: Mapping[str, Any],
    ids: tuple[str, str],
    report: _Report,
) -> None:
    """Add to an existing host what it lacks."""
    group, template = ids
    what = f"host {wanted.host!r}"
    groups = [{"groupid": one["groupid"]} for one in host.get("hostgroups", host.get("groups", []))]
    linked = [{"templateid": one["templateid"]} for one in host["parentTemplates"]]
    macros = {one["macro"]: one.get("value", "") for one in host["macros"]}
    changes: dict[str, Any] = {}
    if {"groupid": group} not in groups:
        changes["groups"] = [*groups, {"groupid": group}]
    if {"templateid": template} not in linked:
        changes["templates"] = [*linked, {"templateid": template}]
    if wanted.visible_name and host["name"] != wanted.visible_name:
        changes["name"] = wanted.visible_name
    if not changes and macros.get(SENDERS_MACRO) == wanted.senders:
        report.same(what)
        return
    parts = [*changes, *(["senders"] if macros.get(SENDERS_MACRO) != wanted.senders else [])]
    if not report.say(what, f"updated ({', '.join(parts)})"):
        return
    if changes:
        await api.call("host.update", {"hostid": host["hostid"], **changes})
    if "senders" in parts:
        await _set_senders(api, wanted, host["hostid"])


async def _set_senders(api: Api, wanted: Wanted, hostid: str) -> None:
    """Set the one macro; host.update would replace all of the host's macros."""
    found = await api.call(
        "usermacro.get", {"hostids": [hostid], "filter": {"macro": [SENDERS_MACRO]}}
    )
    if found:
        macro = {"hostmacroid": found[0]["hostmacroid"], "value": wanted.senders}
        await api.call("usermacro.update", macro)
    else:
        macro = {"hostid": hostid, "macro": SENDERS_MACRO, "value": wanted.senders}
        await api.call("usermacro.create", macro)
