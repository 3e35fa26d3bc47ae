"""Who may see and do what, in front of every page: nothing behind this looks at a Host, an Origin or a token.

The rules. A name in Host that is not ours is refused: another site's name may be made to lead here (DNS rebinding),
an address may not. Where the page is reached from other machines, or may act, a token is needed, once in the address
and then as a cookie that no other site's request carries. What changes anything is a POST from our own pages: its
Origin is ours, and its form bears a secret of this process, which only a page of ours can show. Nothing runs, loads or
frames that is not served here (Content-Security-Policy).

Source: OWASP Cross-Site Request Forgery Prevention Cheat Sheet; Content Security Policy Level 3; Fetch Metadata.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wal2lake.errors import ConfigError

_LOOPBACK_NAMES = ("localhost",)
_SHORTEST_TOKEN = 16
_MOST_BODY = 1 << 16
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all a form's Origin would be null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """``host``: where the page listens; ``names``: more names that lead to it; ``token``: what is needed to see it, ""
    for nothing; ``actions``: it may act. ``form_secret``: what a form of ours bears."""

    host: str = "127.0.0.1"
    names: Collection[str] = ()
    token: str = field(default="", repr=False)
    actions: bool = False
    form_secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @classmethod
    def of(cls, host: str, names: Collection[str], token: str, *, actions: bool) -> Access:
        """With a token made by chance where one is needed and none is given; raises ConfigError for a short one."""
        if token and len(token) < _SHORTEST_TOKEN:
            raise ConfigError(
                f"WAL2LAKE_UI_TOKEN has less than {_SHORTEST_TOKEN} characters.",
                hint="Make one by chance, as `openssl rand -hex 16` does.",
            )
        if not token and (actions or not is_loopback(host)):
            token = secrets.token_urlsafe(24)
        own = [] if is_loopback(host) else [socket.gethostname(), host]
        return cls(host, frozenset(name.lower() for name in (*names, *own)), token, actions)

    def knows(self, host: str) -> bool:
        """A Host header that means this page."""
        name = _without_port(host)
        if name in _LOOPBACK_NAMES or name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not is_loopback(self.host)

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    @property
    def session(self) -> str:
        """What the cookie holds: proof of the token, and not the token."""
        return hmac.new(self.token.encode(), b"wal2lake ui", hashlib.sha256).hexdigest()


class Guard:
    """ASGI middleware. ``cookie``: the cookie's name, another for each port, for browsers tell ports not apart."""

    def __init__(self, app: ASGIApp, access: Access, cookie: str = "wal2lake_ui") -> None:
        self._app = app
        self._access = access
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return  # nothing else is spoken here

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [(name, value) for name, value in message["headers"] if name.decode() not in _HEADERS]
                message["headers"] = [*given, *((name.encode(), value.encode()) for name, value in _HEADERS.items())]
            await send(message)

        answer = self._answer(Request(scope, receive))
        await (answer or self._app)(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """What is answered instead of the page; None where that may be seen."""
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self._access.knows(hosts[0]):
            text = (
                "This name does not lead to this page. Use localhost or an address, or start it with --allow-host NAME."
            )
            return PlainTextResponse(text, 421)
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST are answered.", 405)
        if self._access.token and not self._is_known(request):
            return self._let_in(request)
        if request.method == "POST":
            return self._refused(request.headers)
        return None

    def _is_known(self, request: Request) -> bool:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if bearer and self._access.is_token(bearer):
            return True
        return hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._access.session.encode())

    def _let_in(self, request: Request) -> Response:
        given = request.query_params.get("token", "")
        if request.method != "GET" or not given or not self._access.is_token(given):
            text = "A token is needed: open the address that `wal2lake ui` printed, which ends with ?token=…"
            return PlainTextResponse(text, 401)
        left = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        query = "&".join(f"{quote(name)}={quote(value)}" for name, value in left)
        page = request.url.path.rpartition("/")[2]  # relative, for a proxy may have a path in front of it
        answer = RedirectResponse(f"./{quote(page)}{'?' if query else ''}{query}", 303)
        answer.set_cookie(self._cookie, self._access.session, httponly=True, samesite="strict")
        return answer

    def _refused(self, headers: Headers) -> Response | None:
        """A POST that no page of ours has sent; the form's secret is asked for where the form is read."""
        if not self._access.actions:
            return PlainTextResponse("This page only shows. Start it with --allow-actions to have it act.", 403)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if (origin is not None and urlsplit(origin).netloc != headers["host"]) or site != "same-origin":
            return PlainTextResponse("This request comes from another site, and was not carried out.", 403)
        return None


async def read_form(request: Request, access: Access) -> dict[str, str] | None:
    """The fields of a form of ours; None where it does not bear the secret, or is none. At most 64 kB are read."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        return None
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BODY:
                return None
    except ClientDisconnect:  # nobody is there to be told
        return None
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return None
    form = {name: values[0] for name, values in fields.items()}
    return form if hmac.compare_digest(form.get("secret", "").encode(), access.form_secret.encode()) else None


def is_loopback(host: str) -> bool:
    """Whether what listens at ``host`` is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOOPBACK_NAMES


def _without_port(host: str) -> str:
    """ "[::1]:80" and "a:80" without the port and brackets, in lower case; "" for what is no host and port alone."""
    try:
        parts = urlsplit(f"//{host}")
        return (parts.hostname or "") if parts.netloc == host and "@" not in host else ""
    except ValueError:
        return ""
