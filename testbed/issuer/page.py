"""The page where a person approves a device: a test issuer, so a user name is enough."""

import html
from collections.abc import Iterable

from aiohttp import web

from testbed.issuer import sign_in
from testbed.issuer.core import Issuer
from testbed.issuer.device import DeviceState
from testbed.issuer.sign_in import SignInRefusedError

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{organisation}: approve a device</title></head>
<body><h1>{organisation}</h1>{message}
<form method="post" action="device">
<p><label>Code shown by the device <input name="user_code" value="{code}" required></label></p>
{fields}
<p><button name="decision" value="approve">Approve</button>
<button name="decision" value="deny">Deny</button></p>
</form></body></html>
"""


def add_routes(app: web.Application, issuer: Issuer) -> None:
    """`/device`: the form, and its answer; `curl -d user_code=… -d username=…` approves as well."""

    async def show(request: web.Request) -> web.Response:
        typed = request.query.get("user_code", "")
        code = issuer.devices.by_user_code(typed)
        return _render(issuer, "", typed, acr_values=code.acr_values if code else ())

    async def decide(request: web.Request) -> web.Response:
        form = await request.post()
        typed = str(form.get("user_code", ""))
        code = issuer.devices.by_user_code(typed)
        if code is None:
            return _render(issuer, "This code is not known, or it has expired.", typed, 400)
        denied = form.get("decision", "approve") == "deny"
        wanted = () if denied else code.acr_values
        try:
            session = sign_in.sign_in(
                form, directory=issuer.directory, clock=issuer.clock, acr_values=wanted
            )
        except SignInRefusedError as error:
            return _render(issuer, str(error), typed, error.status, acr_values=wanted)
        code.username, code.acr, code.auth_time = session.username, session.acr, session.at
        code.state = DeviceState.DENIED if denied else DeviceState.APPROVED
        word = "denied" if denied else "approved"
        return _render(issuer, f"The device is {word} as {session.username}; go back to it.", "")

    app.router.add_get("/device", show)
    app.router.add_post("/device", decide)


def _render(
    issuer: Issuer, message: str, code: str, status: int = 200, *, acr_values: Iterable[str] = ()
) -> web.Response:
    text = _PAGE.format(
        organisation=html.escape(issuer.settings.organisation),
        message=f"<p>{html.escape(message)}</p>" if message else "",
        code=html.escape(code),
        fields=sign_in.fields(issuer.directory, acr_values),
    )
    return web.Response(text=text, status=status, content_type="text/html")
