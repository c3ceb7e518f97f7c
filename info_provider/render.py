"""GLUE2 JSON: one object, class name to an array of entities (GFD.219)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from info_provider.glue import Entity, Site

_FIRST = ("ID", "Name", "CreationTime", "Validity")
_LAST = ("OtherInfo", "Extension", "Associations")

RENAMED_CLASSES = {
    "ComputingManagerAcceleratorInfo": "ComputingManagerAccelerator",
    "ComputingShareAcceleratorInfo": "ComputingShareAccelerator",
}
"""Draft v0.5 to the text of 2020: neither has a number of OGF's, readers of both exist."""

RENAMED_ATTRIBUTES = {
    "ComputingManagerAcceleratorInfo": {
        "TotalPhysicalAccelerators": "TotalNumbers",
        "TotalAcceleratorSlots": "TotalSlots",
        "UsedAcceleratorSlots": "UsedSlots",
    },
    "ComputingShareAcceleratorInfo": {
        "FreeAcceleratorSlots": "FreeSlots",
        "UsedAcceleratorSlots": "UsedSlots",
        "MaxAcceleratorSlotsPerJob": "MaxSlotsPerJob",
    },
    "AcceleratorEnvironment": {"LogicalAccelerators": "Numbers"},
}
_NOT_IN_2020 = {"AcceleratorEnvironment": ("PhysicalAccelerators",)}


def glue2_json(site: Site, *, accelerator_names: str = "v0.5") -> bytes:
    """The site as one JSON document, UTF-8, ending in a newline; the order of keys is fixed.

    `accelerator_names` is `v0.5` (what ACCESS's ipf prints) or `2020`.
    """
    of_2020 = accelerator_names == "2020"
    document: dict[str, list[dict[str, Any]]] = {}
    for entity in site.entities():
        name = type(entity).__name__
        attributes = _attributes(entity)
        if of_2020:
            attributes = _as_of_2020(name, attributes)
            name = RENAMED_CLASSES.get(name, name)
        document.setdefault(name, []).append(attributes)
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _attributes(entity: Entity) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(entity)
    middle = [key for key in values if key not in _FIRST and key not in _LAST]
    keys = [*_FIRST, *middle, *(key for key in _LAST if key in values)]
    return {key: values[key] for key in keys}


def _as_of_2020(name: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    renamed = RENAMED_ATTRIBUTES.get(name, {})
    gone = _NOT_IN_2020.get(name, ())
    return {renamed.get(key, key): value for key, value in attributes.items() if key not in gone}
