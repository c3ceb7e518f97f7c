"""The page where a person approves a device: a test issuer, so a user name is enough."""

import html

from aiohttp import web

from testbed.issuer.core import Issuer
from testbed.issuer.device import DeviceState
from testbed.issuer.directory import UnknownUserError

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{organisation}: approve a device</title></head>
<body><h1>{organisation}</h1>{message}
<form method="post" action="device">
<p><label>Code shown by the device <input name="user_code" value="{code}" required></label></p>
<p><label>User name <input name="username" list="users" required></label>
<datalist id="users">{users}</datalist></p>
<p>This issuer is for tests: it asks for no password.</p>
<p><button name="decision" value="approve">Approve</button>
<button name="decision" value="deny">Deny</button></p>
</form></body></html>
"""


def add_routes(app: web.Application, issuer: Issuer) -> None:
    """`/device`: the form, and its answer; `curl -d user_code=… -d username=…` approves as well."""

    async def show(request: web.Request) -> web.Response:
        return _render(issuer, "", request.query.get("user_code", ""))

    async def decide(request: web.Request) -> web.Response:
        form = await request.post()
        typed = str(form.get("user_code", ""))
        code = issuer.devices.by_user_code(typed)
        if code is None:
            return _render(issuer, "This code is not known, or it has expired.", typed, 400)
        try:
            user = issuer.directory.user(str(form.get("username", "")))
        except UnknownUserError:
            return _render(issuer, "There is no such user.", typed, 400)
        if not issuer.directory.usable(user):
            return _render(issuer, "This user is suspended.", typed, 403)
        denied = form.get("decision", "approve") == "deny"
        code.username = user.username
        code.state = DeviceState.DENIED if denied else DeviceState.APPROVED
        word = "denied" if denied else "approved"
        return _render(issuer, f"The device is {word} as {user.username}; go back to it.", "")

    app.router.add_get("/device", show)
    app.router.add_post("/device", decide)


def _render(issuer: Issuer, message: str, code: str, status: int = 200) -> web.Response:
    users = "".join(
        f'<option value="{html.escape(user.username)}">' for user in issuer.directory.users()
    )
    text = _PAGE.format(
        organisation=html.escape(issuer.settings.organisation),
        message=f"<p>{html.escape(message)}</p>" if message else "",
        code=html.escape(code),
        users=users,
    )
    return web.Response(text=text, status=status, content_type="text/html")
