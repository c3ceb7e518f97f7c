"""Which names a site may speak for: its own and what is below, and what the person accepted."""

import pytest

from headgate.cli.failures import CommandFailure
from headgate.cli.site_names import (
    Domain,
    check_resource,
    check_scopes,
    check_services,
    same_address,
)

SITE = Domain("hpc.example.org", others=("b.hpc.example.org", "elsewhere.example"))


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("hpc.example.org", True),
        ("HPC.example.org.", True),
        ("login.hpc.example.org", True),
        ("example.org", False),
        ("tokens.example.org", False),
        ("evilhpc.example.org", False),
        ("hpc.example.org.evil.example", False),
        ("b.hpc.example.org", False),
        ("login.b.hpc.example.org", False),
        ("elsewhere.example", False),
        ("", False),
        (".", False),
    ],
)
def test_a_site_has_its_host_and_what_is_below(host: str, *, own: bool):
    """Neighbours, look-alikes, and what is another remembered site's are not its own."""
    assert SITE.has_host(host) is own


def test_an_address_is_itself_alone():
    """Nothing is below a number."""
    site = Domain("127.0.0.1")
    assert site.has_host("127.0.0.1")
    assert not site.has_host("x.127.0.0.1")
    assert not site.has_pattern("*.127.0.0.1")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("https://hpc.example.org", True),
        ("https://tokens.hpc.example.org:8443/x", True),
        ("https://hpc.example.org@evil.example", False),
        ("https://evil.example/hpc.example.org", False),
        ("https://hpc.example.org https://evil.example", False),
        ("https://hpc.example.org\\@evil.example", False),
        ("https://[", False),
        ("gateway", False),
        ("urn:hpc.example.org", False),
        ("https://wlcg.cern.ch/jwt/v1/any", False),
    ],
)
def test_services_are_own_by_their_host(name: str, *, own: bool):
    """An audience or an address counts by its host; two in one word are none."""
    assert SITE.has_service(name) is own


def test_what_was_accepted_is_own():
    """A host, a domain, or an audience by its very name."""
    site = Domain("gw.example.org", ("Login.example.org", "*.nodes.example.net", "gateway"))
    assert site.has_host("login.example.org")
    assert site.has_service("https://login.example.org/x")
    assert site.has_host("a.b.nodes.example.net")
    assert site.has_pattern("[gpu*.nodes.example.net]:2222")
    assert site.has_service("gateway")
    for name in ("nodes.example.net", "x.login.example.org", "*"):
        assert not site.has_host(name)


@pytest.mark.parametrize(
    ("pattern", "own"),
    [
        ("login.hpc.example.org", True),
        ("[login.hpc.example.org]:2222", True),
        ("gpu*.hpc.example.org", False),
        ("gpu*.x.hpc.example.org", True),
        ("*", False),
        ("*.org", False),
        ("*.example.org", False),
        ("*hpc.example.org", False),
        ("login.hpc.example.or?", False),
        ("[*]:22", False),
        ("10.0.0.1", False),
        ("|1|abc=|def=", False),
        ("*.b.hpc.example.org", False),
    ],
)
def test_a_pattern_is_own_if_all_it_matches_is(pattern: str, *, own: bool):
    """A wildcard must stand below the site's host, and reach no other remembered site."""
    assert SITE.has_pattern(pattern) is own


def test_an_accepted_domain_leaves_other_sites_their_hosts():
    """`*.example.org` is not for the hosts of another remembered site, unless by their names."""
    site = Domain("a.example.org", ("*.example.org", "x.b.example.org"), ("b.example.org",))
    assert site.has_host("login.example.org")
    assert site.has_host("x.b.example.org")
    for host in ("b.example.org", "login.b.example.org"):
        assert not site.has_host(host)
    assert not site.has_pattern("*.example.org")
    assert not site.has_pattern("*.b.example.org")
    assert site.has_pattern("*.c.example.org")


def test_patterns_of_a_site_without_neighbours():
    """Wildcards below the site's own host are its own."""
    site = Domain("hpc.example.org")
    assert site.has_pattern("*.hpc.example.org")
    assert site.has_pattern("gpu?.hpc.example.org")


def test_a_service_is_called_what_it_is_asked_by():
    """RFC 9728: another name is refused, another spelling of the same is not."""
    assert same_address("https://HPC.example.org:443/", "https://hpc.example.org")
    assert not same_address("https://hpc.example.org", "http://hpc.example.org")
    assert not same_address("https://hpc.example.org", "https://[")
    check_resource("https://hpc.example.org", "https://hpc.example.org/", SITE)
    check_resource("https://hpc.example.org", "", SITE)
    with pytest.raises(CommandFailure, match="calls itself") as caught:
        check_resource("https://hpc.example.org", "https://tokens.hpc.example.org", SITE)
    assert "headgate login https://tokens.hpc.example.org" in caught.value.advice


def test_foreign_services_are_named():
    """The sentence says which, and the command that accepts them."""
    with pytest.raises(CommandFailure, match=r"for https://b\.example, which") as caught:
        check_services("https://hpc.example.org", ("", "https://b.example"), SITE)
    assert caught.value.advice.endswith("--accept https://b.example")


@pytest.mark.parametrize(
    ("scope", "known"),
    [
        ("openid", True),
        ("wlcg.groups", True),
        ("eduperson_entitlement", True),
        ("compute.create", True),
        ("storage.modify:/", False),
        ("wlcg.groups:/admins", False),
        ("openid profile", False),
        ("scim:write", False),
        ("eduperson_x scim:write", False),
    ],
)
def test_scopes_are_the_known_ones(scope: str, *, known: bool):
    """What a site of ours has no use for is not asked for, unless the person names it."""
    url = "https://hpc.example.org"
    check_scopes(url, [scope], [scope])
    if known:
        check_scopes(url, [scope], [])
    else:
        with pytest.raises(CommandFailure, match="does not need"):
            check_scopes(url, [scope], [])
