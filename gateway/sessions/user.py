"""For whom sessions are opened."""

from dataclasses import dataclass

from headgate.identity import Identity


@dataclass(frozen=True, slots=True)
class User:
    """For whom a session acts: an identity, the account it maps to, and the cluster."""

    identity: Identity
    cluster: str
    account: str
