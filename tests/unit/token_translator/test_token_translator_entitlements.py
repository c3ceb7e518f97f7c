"""AARC-G069: which group membership a URN states, and when it is the one that is wanted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from token_translator.entitlements import EntitlementError, Membership, parse

HPC = "urn:mace:egi.eu:group:hpc"


@pytest.mark.parametrize(
    ("text", "membership"),
    [
        (f"{HPC}#aai.egi.eu", Membership("urn:mace:egi.eu", ("hpc",), "", "aai.egi.eu")),
        (HPC, Membership("urn:mace:egi.eu", ("hpc",))),
        (f"{HPC}:admins:night", Membership("urn:mace:egi.eu", ("hpc", "admins", "night"))),
        (f"{HPC}:role=manager", Membership("urn:mace:egi.eu", ("hpc",), "manager")),
        (f"{HPC}:role=member", Membership("urn:mace:egi.eu", ("hpc",))),
        ("URN:MACE:EGI.eu:group:HPC", Membership("urn:mace:egi.eu", ("HPC",))),
        ("urn:geant:a:b:group:x", Membership("urn:geant:a:b", ("x",))),
        ("urn:geant:a:group:group:x", Membership("urn:geant:a", ("group", "x"))),
        ("urn:geant:a:group:Ryhm%c3%a4", Membership("urn:geant:a", ("Ryhmä",))),
        ("urn:geant:a:group:Ryhm%C3%A4", Membership("urn:geant:a", ("Ryhmä",))),
        ("urn:geant:a:group:x%3Ay", Membership("urn:geant:a", ("x:y",))),
        ("urn:geant:a:group:x:role%3Dadmin", Membership("urn:geant:a", ("x", "role=admin"))),
        ("urn:geant:a:group:x%23b", Membership("urn:geant:a", ("x#b",))),
        ("urn:geant:a:group:x:role=a%20b", Membership("urn:geant:a", ("x",), "a b")),
    ],
)
def test_what_a_urn_states(text: str, membership: Membership) -> None:
    """Words are split first and percent-decoded then; only namespaces ignore case."""
    assert parse(text) == membership


@pytest.mark.parametrize(
    "text",
    [
        "", "hpc", "urn:mace:egi.eu", "urn:mace:egi.eu:group:", "urn:mace:egi.eu:group",
        "urn:geant:group:x", "urn:mace:egi.eu:res:vm#aai.egi.eu", "http://egi.eu:group:x:y",
        f"{HPC}:", f"{HPC}::x", f"{HPC}:role=", f"{HPC}:role=a:b", f"{HPC}:role=a:role=b",
        "urn:mace:egi.eu:group:role=admin", f"{HPC}#", f"{HPC}#a#b", f"{HPC}?+x", f"{HPC}?=x",
        f"{HPC}%", f"{HPC}%2", f"{HPC}%zz", f"{HPC}%ff", f"{HPC}%00", f"{HPC}%0a",
        f"{HPC}%e2%80%8b",
        f"{HPC} ", f" {HPC}", f"{HPC}\n", "urn:mace:egi.eu:group:hpç", HPC + "x" * 3000,
    ],
)  # fmt: skip
def test_what_states_no_membership(text: str) -> None:
    """Other entitlements and malformed ones are no membership of anything."""
    with pytest.raises(EntitlementError):
        parse(text)


@pytest.mark.parametrize(
    ("held", "wanted", "exactly", "below"),
    [
        pytest.param(HPC, HPC, True, True, id="the same"),
        pytest.param(f"{HPC}-admins", HPC, False, False, id="prefix of a longer name"),
        pytest.param(HPC, f"{HPC}-admins", False, False, id="longer than what is held"),
        pytest.param(f"{HPC}:admins", HPC, False, True, id="subgroup for its parent"),
        pytest.param(HPC, f"{HPC}:admins", False, False, id="parent for its subgroup"),
        pytest.param(f"{HPC}%3Aadmins", HPC, False, False, id="encoded colon is no subgroup"),
        pytest.param(f"{HPC}:role=manager", HPC, False, False, id="role for plain membership"),
        pytest.param(HPC, f"{HPC}:role=manager", False, False, id="membership for a role"),
        pytest.param(f"{HPC}:role=member", HPC, True, True, id="role member is membership"),
        pytest.param(HPC, f"{HPC}:role=member", True, True, id="membership is role member"),
        pytest.param(f"{HPC}:role=manager", f"{HPC}:role=manager", True, True, id="the same role"),
        pytest.param(
            f"{HPC}:a:role=manager", f"{HPC}:role=manager", False, False, id="role of a subgroup"
        ),
        pytest.param(f"{HPC}:a:role=manager", HPC, False, False, id="role below for membership"),
        pytest.param(f"{HPC}#a", f"{HPC}#a", True, True, id="the same authority"),
        pytest.param(f"{HPC}#evil", f"{HPC}#a", False, False, id="authority mismatch"),
        pytest.param(HPC, f"{HPC}#a", False, False, id="authority missing"),
        pytest.param(f"{HPC}#evil", HPC, False, False, id="authority not listed"),
        pytest.param(f"{HPC}:a#evil", f"{HPC}#a", False, False, id="authority of a subgroup"),
        pytest.param(
            "urn:mace:egi.eu.evil:group:hpc", HPC, False, False, id="namespace that begins alike"
        ),
        pytest.param("urn:mace:evil:group:hpc", HPC, False, False, id="other namespace"),
        pytest.param("urn:MACE:egi.EU:group:hpc", HPC, True, True, id="namespace in other case"),
        pytest.param("urn:mace:egi.eu:group:HPC", HPC, False, False, id="group in other case"),
    ],
)
def test_what_satisfies_what(held: str, wanted: str, *, exactly: bool, below: bool) -> None:
    """Groups, roles and authorities are compared as wholes; subgroups count only when said."""
    assert parse(held).satisfies(parse(wanted), subgroups=False) is exactly
    assert parse(held).satisfies(parse(wanted), subgroups=True) is below


@given(st.text(max_size=120))
def test_no_text_is_a_surprise(text: str) -> None:
    """Whatever an issuer sends is a membership or none."""
    try:
        assert parse(f"{HPC}:{text}").path[0] == "hpc"
    except EntitlementError:
        return
