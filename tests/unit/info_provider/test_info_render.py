"""GLUE2 JSON as it is printed."""

import json
from types import SimpleNamespace

from info_provider.glue import attribute
from info_provider.render import glue2_json
from info_provider.site import describe


def test_the_document_is_classes_with_arrays(make: SimpleNamespace) -> None:
    """Each class is an array; entities begin with ID and end with Associations; times are UTC."""
    text = glue2_json(describe(make.snapshot(), make.settings()))
    assert text.endswith(b"}\n")
    document = json.loads(text)
    for entities in document.values():
        for entity in entities:
            assert list(entity)[:4] == ["ID", "Name", "CreationTime", "Validity"]
            assert list(entity)[-1] == "Associations"
            assert entity["CreationTime"] == "2026-05-04T12:00:00Z"
    assert document["AdminDomain"][0]["Associations"]["ParentDomainID"] is None


def test_the_other_names_of_accelerators(make: SimpleNamespace) -> None:
    """The text of 2020 has other classes and attributes for the same counts."""
    site = describe(make.snapshot(nodes=[make.node(used="gpu:tesla:1")]), make.settings())
    document = json.loads(glue2_json(site, accelerator_names="2020"))
    [manager] = document["ComputingManagerAccelerator"]
    assert (manager["TotalNumbers"], manager["TotalSlots"], manager["UsedSlots"]) == (4, 4, 1)
    [share] = document["ComputingShareAccelerator"]
    assert (share["FreeSlots"], share["UsedSlots"], share["MaxSlotsPerJob"]) == (3, 0, 4)
    [kind] = document["AcceleratorEnvironment"]
    assert kind["Numbers"] == 4
    assert "PhysicalAccelerators" not in kind
    assert "ComputingManagerAcceleratorInfo" not in document


def test_spelling_of_attributes() -> None:
    """Acronyms are GLUE's: CPUs, OS, URL, ID."""
    fields = ["id", "total_logical_cpus", "os_family", "url", "cpu_model", "www", "rule"]
    assert [attribute(field) for field in fields] == [
        "ID",
        "TotalLogicalCPUs",
        "OSFamily",
        "URL",
        "CPUModel",
        "WWW",
        "Rule",
    ]
