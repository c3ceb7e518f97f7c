"""IDs that stay the same from run to run, and the head every entity begins with."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from headgate.clock import rfc3339


class Head(TypedDict):
    """The attributes all entities share."""

    id: str
    name: str
    creation_time: str
    validity: int


@dataclass(frozen=True, slots=True)
class Identifiers:
    """Names of everything in one site: `urn:glue2:<Class>:<local>.<service>`.

    A local name is a partition, a kind of node, an interface: what an administrator recognises,
    and what does not change while nodes come and go.
    """

    domain: str
    service: str
    observed_at: datetime
    validity: int

    def of(self, kind: str, local: str = "") -> str:
        """The ID of the entity of that class and local name (RFC 8141, section 2)."""
        name = f"{local}.{self.service}" if local else self.service
        return f"urn:glue2:{kind}:{re.sub(r'[^A-Za-z0-9._:@/-]', '_', name)}"

    def head(self, kind: str, local: str = "", *, name: str = "") -> Head:
        """ID, name, creation time and validity of an entity."""
        return Head(
            id=self.of(kind, local),
            name=name or local or self.service,
            creation_time=rfc3339(self.observed_at),
            validity=self.validity,
        )

    @property
    def manager(self) -> str:
        """The ID of the batch system."""
        return self.of("ComputingManager")
