"""What the issuer is started with: one TOML file."""

from headgate.service import ListenSettings
from headgate.settings import Section
from testbed.issuer.directory import Client, User


class IssuerSettings(Section, frozen=True):
    """The file of `python -m testbed.issuer serve --config FILE`.

    `state_dir` (mode 0700, made if absent) keeps the signing keys over restarts, the `url` once
    the issuer listens, and `control.secret`, which opens the control routes. Lifetimes: seconds.
    `profile` is the access token profile of clients that ask for none: `iam` or `wlcg`.
    `include_authn_info` and `include_scope` are IAM's `iam.access_token.include_*`. Some issuers
    cannot put several audiences into one token: with `single_audience` only the first gets in.
    """

    state_dir: str
    listen: ListenSettings = ListenSettings()
    organisation: str = "headgate-testbed"
    profile: str = "iam"
    include_authn_info: bool = False
    include_scope: bool = False
    access_token_seconds: int = 3600
    single_audience: bool = False
    code_seconds: int = 60
    device_code_seconds: int = 600
    device_interval_seconds: int = 5
    users: tuple[User, ...] = ()
    clients: tuple[Client, ...] = ()
