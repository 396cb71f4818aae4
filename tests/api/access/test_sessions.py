"""Log-in: tokens of an OIDC provider, its code flow, sessions of browsers, what other sites make a browser send."""

import asyncio
import re
import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPErrorProcessor, build_opener

import jwt
import pytest

from gantree.api.access import oidc
from gantree.formats.access.reader import AccessRules, OidcRules
from gantree.model.access import grant_of
from gantree.model.errors import Unreachable
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster
from support.front import DAEMON_TOKEN, Front, Told
from support.oidc_provider import CLIENT, Provider

SITE = "http://gantree.test"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def front(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    access = f"""
users: {{bob: {{grants: {{role: user}}}}, nils: {{}}}}
groups: {{ml: {{grants: {{role: user, queue: research}}}}}}
oidc: {{issuer: "{provider.issuer}", audience: gantree, client_id: {CLIENT}}}
"""
    with Front(tmp_path_factory.mktemp("front"), access, cluster(), Policy()) as front:
        yield front


def asks(front: Front, token: str) -> Told:
    return front.ask("", "GET", "/v1/session", token=token)


def test_a_token_of_the_provider_says_who_and_which_groups(
    front: Front, provider: Provider
) -> None:
    told = asks(front, provider.token()).json
    assert (told["user"], told["grants"]) == ("alice", [{"role": "user", "queue": "research"}])
    assert asks(front, provider.token(groups="other")).status == 403
    before = dict(provider.asked)
    assert asks(front, provider.token()).status == 200
    assert provider.asked == before  # keys are kept


def test_a_token_that_is_not_for_us_or_not_good_any_more_is_nobody_s(
    front: Front, provider: Provider
) -> None:
    past, forged = time.time() - 600, Provider()
    forged.rotate("k1")
    bad = {
        "audience": provider.token(audience="other"),
        "issuer": provider.token(iss="https://evil.example"),
        "expired": provider.token(exp=past),
        "no expiry": provider.token(exp=None),
        "no user": provider.token(preferred_username=None),
        "odd user": provider.token(preferred_username="a\nb"),
        "signature": forged.token(iss=provider.issuer),
        "none": jwt.encode({"iss": provider.issuer, "aud": "gantree", "exp": time.time() + 60}, "", "none"),
        "shared secret": jwt.encode(
            {"iss": provider.issuer}, "shared-secret-of-thirty-two-bytes", "HS256", {"kid": "k1"}
        ),
        "no token": "a.b.c",
        "long": "a." * 20_000,
    }  # fmt: skip
    answered = {what: asks(front, token).status for what, token in bad.items()}
    assert answered == dict.fromkeys(bad, 401)
    forged._server.server_close()


def test_a_new_key_is_fetched_and_an_old_one_forgotten(
    front: Front, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = provider.token()
    provider.rotate("k2")
    assert asks(front, provider.token()).status == 401  # asked a moment ago
    monkeypatch.setattr(oidc, "ASK_AGAIN_S", 0.0)
    assert asks(front, provider.token()).status == 200
    assert asks(front, old).status == 401


def test_keys_outlive_a_provider_that_does_not_answer_by_some_hours_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oidc, "ANSWER_WITHIN_S", 0.5)
    monkeypatch.setattr(oidc, "ASK_AGAIN_S", 0.0)
    monkeypatch.setattr(oidc, "KEYS_FOR_S", 0.0)

    async def asked() -> None:
        with Provider() as provider:
            known, token = oidc.Oidc(OidcRules(provider.issuer, "gantree")), provider.token()
            assert (await known.bearer(token)).user == "alice"
        assert (await known.bearer(token)).user == "alice", "it has not answered for a moment"
        monkeypatch.setattr(oidc, "KEYS_AT_MOST_S", 0.0)
        with pytest.raises(Unreachable):
            await known.bearer(token)
        monkeypatch.setattr(oidc, "ASK_AGAIN_S", 3600.0)
        with pytest.raises(Unreachable, match="did not answer a moment ago"):
            await known.bearer(token)

    asyncio.run(asked())


def cookie_of(told: Told) -> str:
    """What a browser sends back of the cookies that it was told to set."""
    pairs = (line.partition(";")[0] for line in told.headers.get("set-cookie", "").split("\n"))
    return "; ".join(pair for pair in pairs if not pair.endswith(('=""', "=")))


def entered(front: Front, token: str) -> str:
    told = front.ask("", "POST", "/v1/session", {"token": token}, headers={"origin": SITE})
    assert told.status == 201, told
    return cookie_of(told)


def by_cookie(
    front: Front, cookie: str, method: str = "GET", url: str = "/v1/session", origin: str = ""
) -> Told:
    headers = {"cookie": cookie} | ({"origin": origin} if origin else {})
    return front.ask("", method, url, headers=headers)


def test_a_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(front: Front) -> None:
    told = front.ask(
        "", "POST", "/v1/session", {"token": front.token("bob")}, headers={"origin": SITE}
    )
    flags = told.headers["set-cookie"].lower()
    assert "httponly" in flags and "samesite=strict" in flags and "path=/" in flags
    cookie = cookie_of(told)
    assert by_cookie(front, cookie).json["user"] == "bob"
    refused = front.ask(
        "", "POST", "/v1/session", {"token": "x"}, headers={"origin": "http://evil"}
    )
    assert refused.status == 403
    for origin in (
        "",
        "null",
        "http://evil.test",
        "http://gantree.test.evil",
        "http://gantree.test:81",
    ):
        assert by_cookie(front, cookie, "POST", "/v1/jobs/none/cancel", origin).status == 403
    assert by_cookie(front, cookie, "POST", "/v1/jobs/none/cancel", SITE).status == 404


def test_a_session_ends_when_it_is_left_and_when_its_token_is_revoked(front: Front) -> None:
    cookie = entered(front, front.token("bob"))
    assert by_cookie(front, cookie, "DELETE", origin=SITE).status == 200
    assert by_cookie(front, cookie).status == 401
    made = front.ask("bob", "POST", "/v1/tokens", {}).json
    cookie = entered(front, made["token"])
    assert front.ask("bob", "DELETE", f"/v1/tokens/{made['id']}").status == 200
    assert by_cookie(front, cookie).status == 401


def test_a_session_allows_what_its_token_does(front: Front, provider: Provider) -> None:
    narrow = by_cookie(front, entered(front, front.token("bob", "viewer", "vision"))).json
    assert narrow["grants"] == [{"role": "custom", "queue": "vision"}]
    assert by_cookie(front, entered(front, DAEMON_TOKEN)).json["operator"] is True
    assert by_cookie(front, entered(front, provider.token())).json["user"] == "alice"
    assert front.ask("", "POST", "/v1/session", {"token": front.token("nils")}).status == 403


class _Stay(HTTPErrorProcessor):
    def http_response(self, request: object, response: object) -> object:
        return response


def sent_back(where: str) -> str:
    """What the provider sends a browser back to, as a path of ours."""
    answer = build_opener(_Stay).open(where)
    parts = urlsplit(answer.headers["Location"])
    return f"{parts.path}?{parts.query}"


def begun(front: Front, path: str = "/jobs?a=b") -> tuple[str, str]:
    told = front.ask(
        "", "GET", f"/v1/session/oidc?next={path.replace('?', '%3F').replace('=', '%3D')}"
    )
    assert told.status == 303, told
    return told.headers["location"], cookie_of(told)


def test_a_browser_logs_in_at_the_provider(front: Front) -> None:
    where, kept = begun(front)
    query = parse_qs(urlsplit(where).query)
    assert query["code_challenge_method"] == ["S256"] and query["redirect_uri"] == [
        f"{SITE}/v1/session/oidc/callback"
    ]
    back = sent_back(where)
    assert front.ask("", "GET", back).status == 401  # another browser
    told = front.ask("", "GET", back, headers={"cookie": kept})
    assert (told.status, told.headers["location"]) == (303, "/jobs?a=b")
    session = re.search(r"gantree_session=[^;]+", told.headers["set-cookie"])
    assert session is not None and "samesite=lax" in told.headers["set-cookie"].lower()
    assert by_cookie(front, session[0]).json["user"] == "alice"
    assert front.ask("", "GET", back, headers={"cookie": kept}).status == 401  # a code is good once


def test_a_log_in_at_the_provider_is_on_record_and_its_beginning_is_not(front: Front) -> None:
    where, kept = begun(front)
    assert front.ask("", "GET", sent_back(where), headers={"cookie": kept}).status == 303
    rows = front.ask("daemon", "GET", "/v1/audit?limit=10000").json["rows"]
    found = [
        row
        for row in rows
        if row["route"].startswith("GET /v1/session/oidc") and row["status"] == 303
    ]
    assert {(row["who"], row["route"], row["what"]) for row in found} == {
        ("alice", "GET /v1/session/oidc/callback", "log-in of alice")
    }


def test_over_tls_no_cookie_counts_that_somebody_else_could_have_set(
    front: Front, provider: Provider
) -> None:
    text = front.access_file.read_text()
    secret = front.token("bob")
    try:
        front.access_file.write_text(
            text.replace("oidc: {", 'oidc: {url: "https://gantree.test", ')
        )
        front.file.reload()
        planted = front.ask(
            "", "GET", "/v1/session", headers={"cookie": f"gantree_session={secret}"}
        )
        assert planted.status == 401
        own = {"cookie": f"__Host-gantree_session={secret}"}
        assert front.ask("", "GET", "/v1/session", headers=own).json["user"] == "bob"
        where, kept = begun(front)
        back = sent_back(where.replace("https%3A", "http%3A"))
        assert kept.startswith("__Host-gantree_login=")
        planted = front.ask("", "GET", back, headers={"cookie": kept.removeprefix("__Host-")})
        assert (planted.status, "not one that this browser began" in planted.text) == (401, True)
    finally:
        front.access_file.write_text(text)
        front.file.reload()


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "https://evil.example", "evil"]
)
def test_a_log_in_leads_to_no_other_site(front: Front, path: str) -> None:
    where, kept = begun(front, path)
    assert (
        front.ask("", "GET", sent_back(where), headers={"cookie": kept}).headers["location"] == "/"
    )


def test_a_log_in_of_another_state_or_nonce_is_refused(front: Front, provider: Provider) -> None:
    where, kept = begun(front)
    back = sent_back(where)
    assert front.ask("", "GET", back + "x", headers={"cookie": kept}).status == 401
    where, kept = begun(front)
    provider.nonce = "another"
    try:
        assert front.ask("", "GET", sent_back(where), headers={"cookie": kept}).status == 401
    finally:
        provider.nonce = None


PARTIES: dict[str, tuple[dict[str, object], int]] = {
    "ours": ({"azp": CLIENT}, 303),
    "another client's": ({"azp": "another"}, 401),
    "ours among several": ({"aud": [CLIENT, "files"], "azp": CLIENT}, 303),
    "nobody's among several": ({"aud": [CLIENT, "files"]}, 401),
    "one in a list": ({"aud": [CLIENT]}, 303),
    "no name": ({"azp": [CLIENT]}, 401),
}


@pytest.mark.parametrize("whose", PARTIES)
def test_a_log_in_that_was_made_for_another_client_is_refused(
    front: Front, provider: Provider, whose: str
) -> None:
    claims, status = PARTIES[whose]
    where, kept = begun(front)
    was = dict(provider.claims)
    provider.claims.update(claims)
    try:
        assert front.ask("", "GET", sent_back(where), headers={"cookie": kept}).status == status
    finally:
        provider.claims = was


def test_a_token_that_a_program_fetched_for_its_user_is_good(
    front: Front, provider: Provider
) -> None:
    assert asks(front, provider.token(azp="a-program")).status == 200


def test_a_provider_that_does_not_answer_holds_up_nobody_else(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = front.access_file.read_text()
    try:
        front.access_file.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9", text))
        front.file.reload()
        assert asks(front, "a.b.c").status == 401
        with Provider() as elsewhere:
            assert asks(front, elsewhere.token()).status == 503
        assert front.ask("bob", "GET", "/v1/session").status == 200
    finally:
        front.access_file.write_text(text)
        front.file.reload()


def test_a_unix_user_that_two_go_by_is_neither() -> None:
    def who(unix: dict[str, str], name: str) -> str | None:
        named = {"alice": (grant_of("user"),), "bob": (grant_of("user"),)}
        return AccessRules(named, unix_of_user=unix).user_of_unix(name)

    assert who({"alice": "bob"}, "bob") is None  # bob's jobs run as bob, and alice's do
    assert who({"alice": "bob", "bob": "robert"}, "bob") == "alice"
    assert (who({"alice": "asmith"}, "asmith"), who({}, "bob")) == ("alice", "bob")
