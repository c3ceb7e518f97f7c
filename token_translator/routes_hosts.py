"""The hosts' side over HTTP: known_hosts and ssh_config for people, certificates for nodes."""

import asyncio
import base64
import math
import re
from datetime import timedelta
from typing import Annotated, Protocol

import msgspec
import structlog
from aiohttp import web

from headgate.clock import Clock, rfc3339
from headgate.problems import Forbidden, Invalid, NotFound, TooMany, Unauthenticated
from headgate.web import REQUEST_ID, bearer_token, json_body, json_response
from token_translator import grants, host_signatures, keys, wire
from token_translator.connections import BOUNDS
from token_translator.enrolments import ISSUER, Enrolments, Host
from token_translator.grants import ACCOUNT, BACKDATE
from token_translator.host_settings import HostSettings
from token_translator.signer_client import SignerClient, key_refused
from token_translator.throttle import Throttle

log = structlog.get_logger(__name__)

FRESH_SECONDS = 300
RENEWALS_PER_MINUTE = 6
ATTEMPTS_PER_MINUTE = 60
"""To enrol, from one address; of all addresses together the connections are the bound."""
CHECKS_AT_ONCE = 4
"""So many signatures are checked at a time; anybody may bring one, and each is a process."""


class HostCertificateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /v1/host-certificates`; `signature` is the host key's own, of `at`."""

    public_key: str
    at: Annotated[int, msgspec.Meta(ge=0, le=2**40)] | None = None
    signature: Annotated[str, msgspec.Meta(max_length=host_signatures.MAX_SIGNATURE)] | None = None


class HostCertificateAnswer(msgspec.Struct, frozen=True):
    """A host certificate; times in RFC 3339."""

    certificate: str
    serial: int
    key_id: str
    hostnames: tuple[str, ...]
    valid_after: str
    valid_before: str


class Authorities(Protocol):
    """Where the authorities' public keys come from."""

    async def authorities(self) -> wire.Authorities:
        """The current ones; raises `Unavailable` if they cannot be had."""


class Whole(Protocol):
    """Whether the database is the one that was written last."""

    async def require(self) -> None:
        """Return if it is; raises `Unavailable`."""


class Hosts:
    """What is said to people about hosts, and to hosts about themselves."""

    def __init__(
        self,
        *,
        settings: HostSettings,
        key_types: frozenset[str],
        enrolments: Enrolments,
        signer: SignerClient,
        whole: Whole,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._key_types = key_types
        self._enrolments = enrolments
        self._signer = signer
        self._whole = whole
        self._clock = clock
        self._renewals = Throttle(RENEWALS_PER_MINUTE)
        self._attempts = Throttle(ATTEMPTS_PER_MINUTE)
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)

    async def known_hosts(self) -> str:
        """The lines for a client's known_hosts; raises `NotFound` where none are configured."""
        lines = list(self._settings.known_hosts)
        if not self._settings.vouched and not lines:
            raise NotFound("This site publishes no host keys.", code="no_known_hosts")
        if self._settings.vouched:
            names = ",".join(self._settings.vouched)
            known = await self._signer.authorities()
            lines += [f"@cert-authority {names} {line}" for line in known.host_ca]
        return "".join(f"{line}\n" for line in lines)

    def ssh_config(self, account: str) -> str:
        """What a person's SSH configuration needs for the login nodes; `account` may be empty."""
        if not self._settings.login:
            raise NotFound("This site names no login nodes.", code="no_login_nodes")
        return _ssh_config(self._settings, account)

    async def enrol(
        self, token: str, asked: HostCertificateRequest, *, source: str, request_id: str
    ) -> HostCertificateAnswer:
        """A host's first certificate, for the token an administrator made and the key's signature.

        Without the signature a token for one host would take another's public key away from it.

        Raises:
            Unauthenticated: `enrolment_unknown`; or the signature's faults, as `renew`. Invalid:
            the key is refused. Conflict: `host_enrolled`, as another. TooMany: from this source.
            Unavailable.
        """
        wait = self._attempts.take(source, self._clock.monotonic())
        if wait:
            raise TooMany(
                "Too many enrolments from your address.",
                code="source_rate",
                retry_after=math.ceil(wait),
            )
        await self._whole.require()  # an older database knows tokens that were used since
        public = self._accepted(asked.public_key)
        await self._enrolments.require_known(token)  # before a stranger has us start a process
        await self._require_signed(public, asked)
        host = await self._enrolments.redeem(token, _fingerprint(public), self._clock.now())
        log.info("host_enrolled", names=host.names, key=host.fingerprint, by=host.enrolled_by)
        return await self._certify(host, public, request_id)

    async def renew(self, asked: HostCertificateRequest, request_id: str) -> HostCertificateAnswer:
        """A host's next certificate, for a fresh signature of its own enrolled key.

        Said twice, it gives a second certificate for the same key: of no use without the key.

        Raises:
            Forbidden: `host_unknown`: not enrolled. Unauthenticated: `signature_missing`, another
            key's, or too old. TooMany: the host asks too often.
        """
        await self._whole.require()
        public = self._accepted(asked.public_key)
        fingerprint, now = _fingerprint(public), self._clock.now()
        host = await self._enrolments.find(fingerprint)
        if host is None:
            raise Forbidden("This host key is not enrolled here.", code="host_unknown")
        await self._require_signed(public, asked)
        # Not before: everybody has the public key, and would use up the host's share.
        wait = self._renewals.take(fingerprint, self._clock.monotonic())
        if wait:
            raise TooMany("This host asks too often.", retry_after=math.ceil(wait))
        answer = await self._certify(host, public, request_id)
        await self._enrolments.renewed(fingerprint, now)
        return answer

    async def _require_signed(self, public: str, asked: HostCertificateRequest) -> None:
        """Return if the host key has signed for this, now; raises `Unauthenticated`."""
        if asked.at is None or asked.signature is None:
            raise Unauthenticated(
                "`at` and the host key's `signature` are needed.", code="signature_missing"
            )
        if abs(self._clock.now().timestamp() - asked.at) > FRESH_SECONDS:
            raise Unauthenticated(
                "The signature is not of now: compare the host's clock.", code="signature_stale"
            )
        message = host_signatures.text(asked.at, public)
        async with self._checks:
            good = await host_signatures.signed(
                public_key=public, message=message, signature=asked.signature
            )
        if not good:
            raise Unauthenticated("The signature is not this key's.", code="signature_wrong")

    def _accepted(self, line: str) -> str:
        try:
            key = keys.accept(line, types=self._key_types)
        except keys.KeyRefusedError as error:
            raise key_refused(str(error)) from error
        return f"{key.kind} {base64.b64encode(key.blob).decode()}"

    async def _certify(self, host: Host, public: str, request_id: str) -> HostCertificateAnswer:
        now = self._clock.now().replace(microsecond=0)
        valid = (now - BACKDATE, now + timedelta(seconds=self._settings.certificate_lifetime))
        key_id = grants.key_id(host=host.names[0], by=host.enrolled_by)
        signed = await self._signer.sign_host(
            host.names,
            valid=valid,
            public_key=public,
            key_id=key_id,
            subject=wire.Subject(
                iss=ISSUER,
                sub=host.fingerprint,
                account="",
                realm="",
                profile="host",
                actor=host.enrolled_by[:255],
                request_id=request_id,
            ),
        )
        return HostCertificateAnswer(
            certificate=signed.certificate,
            serial=signed.serial,
            key_id=key_id,
            hostnames=host.names,
            valid_after=rfc3339(valid[0]),
            valid_before=rfc3339(valid[1]),
        )


HOSTS = web.AppKey("hosts", Hosts)


def add(app: web.Application, hosts: Hosts) -> None:
    """Add the routes to the application."""
    app[HOSTS] = hosts
    app.router.add_get("/v1/known_hosts", get_known_hosts)
    app.router.add_get("/v1/ssh_config", get_ssh_config)
    app.router.add_post("/v1/host-certificates", post_host_certificate)


async def get_known_hosts(request: web.Request) -> web.Response:
    """`@cert-authority` lines for the site's hosts, as a client's known_hosts has them."""
    return web.Response(text=await request.app[HOSTS].known_hosts())


async def get_ssh_config(request: web.Request) -> web.Response:
    """Lines for a person's ssh_config; `?account=` fills in who they are there."""
    account = request.query.get("account", "")
    if account and not re.fullmatch(ACCOUNT, account):
        raise Invalid("account: this is not an account's name.")
    return web.Response(text=request.app[HOSTS].ssh_config(account))


async def post_host_certificate(request: web.Request) -> web.Response:
    """A host certificate: for the host key's signature, and at first an enrolment token."""
    hosts, enrolling = request.app[HOSTS], "Authorization" in request.headers
    token = bearer_token(request) if enrolling else ""
    body = await json_body(request, HostCertificateRequest)
    if enrolling:
        answer = await hosts.enrol(
            token,
            body,
            source=request.app[BOUNDS].client(request),
            request_id=request[REQUEST_ID],
        )
    elif body.at is None or body.signature is None:
        raise Unauthenticated(
            "An enrolment token is needed, or `at` and the host key's `signature`.",
            code="missing_token",
        )
    else:
        answer = await hosts.renew(body, request[REQUEST_ID])
    if "text/plain" in request.headers.get("Accept", ""):
        return web.Response(text=f"{answer.certificate}\n", status=201)
    return json_response(answer, status=201)


def _fingerprint(public: str) -> str:
    return keys.fingerprint(base64.b64decode(public.split()[1]))


def _ssh_config(settings: HostSettings, account: str) -> str:
    blocks = [
        "# The login nodes of this site, with a certificate in ~/.ssh/headgate.",
        "# `headgate ssh-config` writes this for you, and keeps the certificate fresh.",
    ]
    for node in settings.login:
        blocks += [f"Host {node.host}", f"    Port {node.port}"]
        blocks += [f"    User {account}"] if account else []
        blocks += [
            "    IdentityFile ~/.ssh/headgate/id_ed25519",
            "    CertificateFile ~/.ssh/headgate/id_ed25519-cert.pub",
            "    IdentitiesOnly yes",
            "    StrictHostKeyChecking yes",
            "    UserKnownHostsFile ~/.ssh/headgate/known_hosts ~/.ssh/known_hosts",
        ]
    return "".join(f"{line}\n" for line in blocks)
