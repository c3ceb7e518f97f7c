"""What OAuth endpoints read from a request, and how they refuse one."""

import base64
import binascii
import hmac
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from multidict import MultiMapping

from testbed.issuer.directory import Client, Directory

Form = MultiMapping[Any]


def client_of(request: web.Request, form: Form, directory: Directory) -> Client | None:
    """The authenticated client: Basic, in the form, or public (RFC 6749, section 2.3)."""
    client_id, secret = _basic(request) or (
        str(form.get("client_id", "")),
        str(form.get("client_secret", "")),
    )
    client = directory.client(client_id)
    if client is None or not hmac.compare_digest(client.secret.encode(), secret.encode()):
        return None
    return client


def bearer(request: web.Request) -> str:
    """The bearer token of a request, or an empty string."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _basic(request: web.Request) -> tuple[str, str] | None:
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return unquote(name), unquote(secret)


def audience_of(form: Form, *, single: bool) -> tuple[str, ...]:
    """`audience`, words of it or repeated, and RFC 8707's `resource`; `single`: the first alone."""
    words = [word for value in form.getall("audience", []) for word in str(value).split()]
    words += [str(value) for value in form.getall("resource", [])]
    found = tuple(dict.fromkeys(words))
    return found[:1] if single else found


def refused(error: str, status: int = 400) -> web.Response:
    """An error of RFC 6749, section 5.2."""
    headers = {"WWW-Authenticate": f'Bearer error="{error}"'} if status == 401 else {}  # noqa: PLR2004 - RFC 6750's own status
    return web.json_response({"error": error}, status=status, headers=headers)
