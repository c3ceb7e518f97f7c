"""Our Zabbix template as a file: export format 6.0, which Zabbix 6.0 and all newer ones import."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from monitoring_probe.items import MASTER, Discovery, Item, ValueType, discoveries, items

NAME = "headgate cluster"
GROUP = "Templates/headgate"
SENDERS_MACRO = "{$HG.SENDERS}"
_VALUE_MAPS: Mapping[str, Mapping[str, str]] = {
    "state": {"0": "OK", "1": "WARNING", "2": "CRITICAL", "3": "UNKNOWN"},
    "failed": {"0": "answered", "1": "failed"},
    "up": {"0": "down", "1": "up"},
}
_MACROS = {
    "{$HG.NODATA}": ("10m", "No news from the probe for so long is a problem."),
    SENDERS_MACRO: ("0.0.0.0/0,::/0", "Addresses that may send values."),
}
# In the order of their names, as an export has them: a comparison before an import minds it.
_STATE_TRIGGERS = (
    (3, "AVERAGE", "cannot be measured"),
    (2, "HIGH", "is critical"),
    (1, "WARNING", "is not well"),
)


def template() -> str:
    """The template, YAML. The same from run to run: importing it again changes nothing."""
    return "\n".join(_yaml({"zabbix_export": _export()})) + "\n"


def _export() -> dict[str, Any]:
    return {
        "version": "6.0",
        "date": "2026-01-01T00:00:00Z",
        "groups": [{"uuid": _uuid("group", GROUP), "name": GROUP}],
        "templates": [
            {
                "uuid": _uuid("template", NAME),
                "template": NAME,
                "name": NAME,
                "description": "A Slurm cluster and its headgate services, sent by headgate-probe.",
                "groups": [{"name": GROUP}],
                "items": [_master(), *(_dependent(one) for one in items())],
                "discovery_rules": [_discovery(one) for one in discoveries()],
                "macros": [
                    {"macro": macro, "value": value, "description": words}
                    for macro, (value, words) in _MACROS.items()
                ],
                "valuemaps": [_value_map(name) for name in _VALUE_MAPS],
            }
        ],
    }


def _master() -> dict[str, Any]:
    return {
        "uuid": _uuid("item", MASTER),
        "name": "Snapshot",
        "type": "TRAP",
        "key": MASTER,
        "delay": "0",
        "history": "0",
        "trends": "0",
        "value_type": "TEXT",
        "allowed_hosts": SENDERS_MACRO,
        "description": "Everything of one run; the other items take their values out of it.",
    }


def _taken(key: str) -> dict[str, Any]:
    """How a dependent item finds its value: the member of the snapshot that is named like it."""
    return {
        "preprocessing": [
            {
                "type": "JSONPATH",
                "parameters": [f"$['{key}']"],
                # What was not measured is absent, and an absent value is no error.
                "error_handler": "DISCARD_VALUE",
            }
        ],
        "master_item": {"key": MASTER},
    }


def _dependent(item: Item, kind: str = "item") -> dict[str, Any]:
    found: dict[str, Any] = {
        "uuid": _uuid(kind, item.key),
        "name": item.name,
        "type": "DEPENDENT",
        "key": item.key,
        "delay": "0",
        "history": "31d",
    }
    if item.type in {ValueType.CHAR, ValueType.TEXT}:
        found["trends"] = "0"
    if item.type is not ValueType.UNSIGNED:
        found["value_type"] = str(item.type)
    if item.units:
        found["units"] = item.units
    if item.value_map:
        found["valuemap"] = {"name": item.value_map}
    found |= _taken(item.key)
    triggers = list(_triggers(item))
    if triggers:
        found["triggers" if kind == "item" else "trigger_prototypes"] = triggers
    return found


def _discovery(rule: Discovery) -> dict[str, Any]:
    return {
        "uuid": _uuid("discovery", rule.key),
        "name": rule.name,
        "type": "DEPENDENT",
        "key": rule.key,
        "delay": "0",
        "lifetime": "7d",
        # In the order of an export, as above.
        "item_prototypes": [
            _dependent(one, "prototype") for one in sorted(rule.items, key=lambda item: item.key)
        ],
        **_taken(rule.key),
    }


def _triggers(item: Item) -> Iterator[dict[str, Any]]:
    path = f"/{NAME}/{item.key}"
    if item.key == "hg.heartbeat":
        yield _trigger(
            "Nothing from the probe for {$HG.NODATA}",
            f"nodata({path},{{$HG.NODATA}})=1",
            "HIGH",
        )
    elif item.key == "hg.spool.dropped":
        yield _trigger("Measurements were dropped unsent", f"change({path})>0", "WARNING")
    elif item.value_map == "state" and item.key != "hg.state[all]":
        subject = item.name.removeprefix("State: ").removesuffix(": state")
        for number, priority, words in _STATE_TRIGGERS:
            # Twice in a row: one lost packet is no incident.
            expression = f"min({path},#2)={number} and max({path},#2)={number}"
            yield _trigger(f"{subject} {words}", expression, priority)


def _trigger(name: str, expression: str, priority: str) -> dict[str, Any]:
    return {
        "uuid": _uuid("trigger", name + expression),
        "expression": expression,
        "name": name,
        "priority": priority,
    }


def _value_map(name: str) -> dict[str, Any]:
    return {
        "uuid": _uuid("valuemap", name),
        "name": name,
        "mappings": [
            {"value": value, "newvalue": words} for value, words in _VALUE_MAPS[name].items()
        ],
    }


def _uuid(kind: str, name: str) -> str:
    """A UUID of version 4's shape, as Zabbix demands, but always the same for the same thing."""
    digits = hashlib.sha256(f"headgate/{kind}/{name}".encode()).hexdigest()
    return f"{digits[:12]}4{digits[13:16]}a{digits[17:32]}"


def _yaml(value: Mapping[str, Any] | Sequence[Any], indent: str = "") -> Iterator[str]:
    """Block YAML of objects, arrays and strings; strings in JSON's quotes, which YAML shares."""
    pairs = (
        (
            (f"{json.dumps(key)}:" if key[0] in "{$" else f"{key}:", one)
            for key, one in value.items()
        )
        if isinstance(value, Mapping)
        else (("-", one) for one in value)
    )
    for mark, one in pairs:
        if isinstance(one, str):
            yield f"{indent}{mark} {json.dumps(one)}"
        elif mark == "-":
            first, *rest = list(_yaml(one, indent + "  ")) or [indent + "  {}"]
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        else:
            yield f"{indent}{mark}"
            yield from _yaml(one, indent + "  ")
