"""What `GET /v1` tells anybody: what a tool has to know before it has a token."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from gateway.clusters import Clusters
from gateway.settings import LoginNodeSettings, LoginSettings, NoticeSettings
from gateway.v1.bulk import MAX_BATCH
from gateway.v1.parameters import MAX_KEY, MAX_LABELS, MAX_PAGE, MAX_WAIT
from headgate import __version__
from headgate.oidc import IssuerSettings
from headgate.web import MAX_BODY_BYTES

FEATURES = (
    "batch",
    "dry_run",
    "environment_kept_until_start",
    "etag",
    "hold",
    "idempotency_key",
    "job_filters",
    "labels",
    "prefer_wait",
)
"""What a client may count on; a word that is here stays."""


@dataclass(frozen=True, slots=True)
class Site:
    """The site's own words; nothing of it is secret."""

    url: str
    login: Sequence[LoginSettings] = ()
    issuers: Sequence[IssuerSettings] = ()
    notices: Sequence[NoticeSettings] = ()
    token_translator: str = ""
    login_nodes: Sequence[LoginNodeSettings] = ()

    def document(
        self, clusters: Clusters, now: datetime, *, features: Sequence[str] = ()
    ) -> dict[str, Any]:
        """The document; notices that are over are not in it."""
        return {
            "name": "headgate",
            "version": __version__,
            "url": self.url,
            "features": sorted((*FEATURES, *features)),
            "limits": {
                "batch": MAX_BATCH,
                "body_bytes": MAX_BODY_BYTES,
                "idempotency_key_characters": MAX_KEY,
                "labels": MAX_LABELS,
                "page": MAX_PAGE,
                "wait_seconds": MAX_WAIT,
            },
            "runtimes": {cluster.name: cluster.runtimes for cluster in clusters},
            "issuers": self.login,
            "trusted_issuers": [
                {"issuer": issuer.url, "scopes": issuer.required_scopes} for issuer in self.issuers
            ],
            "notices": [
                msgspec.to_builtins(notice)
                for notice in self.notices
                if notice.until is None or notice.until > now
            ],
            "clusters": [cluster.name for cluster in clusters],
            "token_translator": self.token_translator or None,
            "login_nodes": self.login_nodes,
        }
