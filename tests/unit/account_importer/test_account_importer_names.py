"""Account names: one stated rule, and everything that does not fit is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from account_importer.names import SHAPE, derive, forbidden


@pytest.mark.parametrize(
    ("user_name", "name"),
    [
        ("alice", "alice"),
        ("Alice", "alice"),
        ("alice.smith", "alice-smith"),
        ("a@example", "a-example"),
    ],
)
def test_user_names_become_account_names(user_name: str, name: str) -> None:
    """Capitals become small, a few separators become a hyphen."""
    assert derive(user_name) == name


@pytest.mark.parametrize(
    "user_name",
    [
        *("", "-oProxyCommand=x", "--", "a,b", "a:b", "a\nb", "a\0b", "a\tb", "../x", "$(id)"),
        *("x" * 33, "\u0430lice", "\u202ealice", "alice$", "0", "42alice", "ali\u00e7e", "a/b"),
    ],
)
def test_what_does_not_fit_is_not_made_to_fit(user_name: str) -> None:
    """Shell words, separators, confusables, numbers and over-long names are refused."""
    with pytest.raises(ValueError, match="does not fit"):
        derive(user_name)


@pytest.mark.parametrize(
    "user_name",
    ["\ufb01ona", "\u212aelvin", "\uff52oot", "stra\u00dfe", "al\u0131ce", "a\u200blice"],
)
def test_lookalikes_are_not_normalised_into_names(user_name: str) -> None:
    """A ligature, Kelvin sign, full-width or invisible letter takes nobody's plain name."""
    with pytest.raises(ValueError, match="does not fit"):
        derive(user_name)


@pytest.mark.parametrize("name", ["root", "slurm", "nobody", "systemd-x", "hg-gateway", "_apt"])
def test_system_names_are_never_given(name: str) -> None:
    """Names of the system and of services stay theirs."""
    assert forbidden(name)


def test_the_site_reserves_names_of_its_own() -> None:
    """What the settings reserve is as good as taken."""
    assert forbidden("ops", ["ops"]) == "ops is reserved"
    assert not forbidden("ops")


@given(st.text(max_size=40))
def test_a_derived_name_always_has_the_shape(user_name: str) -> None:
    """Whatever comes in, what comes out is an account name, or nothing comes out."""
    try:
        name = derive(user_name)
    except ValueError:
        return
    assert SHAPE.fullmatch(name)
    assert derive(name) == name
