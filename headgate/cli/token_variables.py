"""The variables that tokens come in; standard library alone, for ssh waits for what looks here."""

from collections.abc import Mapping

OWN = "HEADGATE_TOKEN"
OTHERS = (
    "ACCESS_TOKEN",
    "OIDC_ACCESS_TOKEN",
    "OS_ACCESS_TOKEN",
    "BEARER_TOKEN",
    "OIDC",
    "WATTS_TOKEN",
    "WATTSON_TOKEN",
)
"""What other tools of the field export: oidc-agent, oinit, WLCG bearer token discovery."""
OTHER_FILE = "BEARER_TOKEN_FILE"


def given(environ: Mapping[str, str], *, logged_in: bool) -> bool:
    """Whether a token is given here: in our own variable, or without a login in another tool's."""
    names = (OWN,) if logged_in else (OWN, *OTHERS, OTHER_FILE)
    return any(environ.get(name, "").strip() for name in names)
