"""Who may see and do what: names that lead elsewhere, forged requests, tokens, and what every answer forbids."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from tests.ui.conftest import Open
from tests.ui.shown import Shown
from wal2lake.changelog.requests import Requests
from wal2lake.errors import ConfigError
from wal2lake.ui.guard import Access

TOKEN = "0123456789abcdef"
FORM = {"name": "shop.orders", "wish": "retry"}
PAGES = (
    "/",
    "/tables",
    "/table?name=shop.orders",
    "/ask?name=shop.orders&wish=retry",
    "/verify",
    "/log",
    "/static/ui.css",
)


def asked(shown: Shown) -> list[tuple[str, str]]:
    return [(request.name, request.wish) for request in Requests(shown.config.log.path, "wal2lake").all()]


def secret_of(page: TestClient) -> str:
    found = re.search(r'name="secret" value="([^"]+)"', page.get("/ask?name=shop.orders&wish=retry").text)
    assert found is not None
    return found[1]


HOSTS = {
    "localhost": True,
    "LOCALHOST:1": True,
    "127.0.0.1:8432": True,
    "127.9.9.9": True,
    "[::1]:8432": True,
    "lake.example.com": True,
    "evil.example": False,
    "localhost.evil.example": False,
    "127.0.0.1.evil.example": False,
    "10.0.0.5:8432": False,
    "evil.example@localhost": False,
    "localhost#evil.example": False,
    "localhost/evil.example": False,
    "localhost?evil.example": False,
    "local\thost": False,
    "": False,
    "[": False,
}


def test_a_name_that_is_not_ours_leads_nowhere(shown: Shown, open_page: Open) -> None:
    """Whoever can have its own name lead to 127.0.0.1 reads nothing here by it."""
    page = open_page(shown, names=("lake.example.com",))
    for host, known in HOSTS.items():
        for path in PAGES:
            answer = page.get(path, headers={"Host": host})
            assert answer.status_code == (200 if known else 421), (host, path)
            assert known or "shop" not in answer.text


def test_elsewhere_an_address_will_do_and_a_name_must_be_known(shown: Shown, open_page: Open) -> None:
    page = open_page(shown, host="0.0.0.0", token=TOKEN)
    codes = [page.get("/", headers={"Host": host}).status_code for host in ("10.0.0.5:8432", "evil.example")]
    assert codes == [401, 421]


def test_every_answer_forbids_what_is_not_served_here(shown: Shown, open_page: Open) -> None:
    page = open_page(shown, token=TOKEN)
    answers = [page.get(path) for path in (*PAGES, "/nothing")]
    page.get(f"/?token={TOKEN}")
    answers += [page.get(path) for path in (*PAGES, "/nothing", "/table?name=nobody")]
    answers.append(page.get("/", headers={"Host": "evil.example"}))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", PAGES)
def test_no_page_asks_for_anything_from_elsewhere_or_has_code_of_its_own(
    shown: Shown, open_page: Open, path: str
) -> None:
    text = open_page(shown, actions=True).get(path).text
    assert not re.search(r"""(src|href|action)=["']?(https?:)?//""", text)
    assert not re.search(r"<script(?! src=\"static/ui.js\" defer></script>)|<style|\sstyle=|\son\w+=|url\(", text)


def test_where_a_token_is_needed_nothing_is_seen_without(shown: Shown, open_page: Open) -> None:
    page = open_page(shown, token=TOKEN)
    for path in PAGES:
        for answer in (page.get(path), page.get(f"{path}{'&' if '?' in path else '?'}token=wrong")):
            assert (answer.status_code, "shop" in answer.text) == (401, False)
    assert page.get("/", headers={"Cookie": f"wal2lake_ui={TOKEN}"}).status_code == 401, "the cookie is not the token"
    assert page.get("/", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert page.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_token_opens_the_page_and_leaves_the_address(shown: Shown, open_page: Open) -> None:
    page = open_page(shown, token=TOKEN)
    answer = page.get(f"/table?name=shop.orders%26x&token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "./table?name=shop.orders%26x")
    assert re.search(r"HttpOnly; Path=/; SameSite=strict", answer.headers["set-cookie"])
    assert TOKEN not in answer.headers["set-cookie"]
    assert page.get("/tables").status_code == 200
    assert (
        page.get(f"//evil.example/?token={TOKEN}", headers={"Cookie": ""}).headers.get("location", "/").count("//") == 0
    )


def test_a_page_that_only_looks_does_nothing(shown: Shown, open_page: Open) -> None:
    page = open_page(shown)
    assert "<button" not in page.get("/table?name=shop.orders").text
    assert 'method="post"' not in page.get("/ask?name=shop.orders&wish=retry").text
    assert page.post("/ask", data=FORM).status_code == 403
    assert page.post("/verify").status_code == 403
    assert asked(shown) == []


def test_a_form_of_ours_is_carried_out(shown: Shown, open_page: Open) -> None:
    page = open_page(shown, actions=True)
    answer = page.post("/ask", data={**FORM, "secret": secret_of(page)}, headers={"Origin": "http://localhost:8432"})
    assert (answer.status_code, answer.headers["location"]) == (303, "./table?name=shop.orders&asked=retry")
    assert asked(shown) == [("orders", "retry")]
    assert "try again: asked, waits for the pipeline" in page.get("/table?name=shop.orders&asked=retry").text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:8432", "Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ],
)
def test_a_form_of_another_site_is_not(shown: Shown, open_page: Open, headers: dict[str, str]) -> None:
    page = open_page(shown, actions=True)
    assert page.post("/ask", data={**FORM, "secret": secret_of(page)}, headers=headers).status_code in (403, 421)
    assert asked(shown) == []


@pytest.mark.parametrize("secret", [None, "", "wrong", "é"])
def test_a_form_without_our_secret_is_not(shown: Shown, open_page: Open, secret: str | None) -> None:
    page = open_page(shown, actions=True)
    form = FORM if secret is None else {**FORM, "secret": secret}
    assert page.post("/ask", data=form).status_code == 403
    assert page.post("/verify", data={} if secret is None else {"secret": secret}).status_code == 403
    assert asked(shown) == []


def test_a_form_in_another_dress_or_too_large_is_not(shown: Shown, open_page: Open) -> None:
    page = open_page(shown, actions=True)
    form = {**FORM, "secret": secret_of(page)}
    text = "&".join(f"{name}={value}" for name, value in form.items())
    assert page.post("/ask", content=text, headers={"Content-Type": "text/plain"}).status_code == 403
    assert page.post("/ask", json=form).status_code == 403
    assert page.post("/ask", data={**form, "more": "x" * (1 << 16)}).status_code == 403
    assert page.put("/ask", data=form).status_code == 405
    assert page.get("/ask", params=form).status_code == 200
    assert asked(shown) == []


def test_what_is_asked_must_be_known(shown: Shown, open_page: Open) -> None:
    page = open_page(shown, actions=True)
    secret = secret_of(page)
    unknown = page.post("/ask", data={"name": "shop.nobody", "wish": "retry", "secret": secret})
    assert (unknown.status_code, "knows no table shop.nobody" in unknown.text) == (409, True)
    assert page.post("/ask", data={"name": "shop.orders", "wish": "drop", "secret": secret}).status_code == 404


def test_when_a_token_is_made() -> None:
    """Where the page is reached from elsewhere, or may act."""
    for host, actions, made in (("127.0.0.1", False, False), ("::1", False, False), ("localhost", True, True)):
        assert bool(Access.of(host, (), "", actions=actions).token) == made
    for host in ("0.0.0.0", "::", "10.0.0.5", "lake.example.com"):
        assert len(Access.of(host, (), "", actions=False).token) >= 32
    assert Access.of("127.0.0.1", (), TOKEN, actions=False).token == TOKEN
    with pytest.raises(ConfigError, match="less than 16"):
        Access.of("127.0.0.1", (), "short", actions=False)
    assert TOKEN not in repr(Access.of("127.0.0.1", (), TOKEN, actions=True))
