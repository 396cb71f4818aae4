"""What a token allows: no more than its user, and no more than itself. How long it is good is in `test_tokens`."""

import json
from collections.abc import Iterator

import pytest

from gantree.model.access import grant_of, narrowed
from support.front import Front
from support.permissions import front_with_jobs


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front_with_jobs(tmp_path_factory.mktemp("front")) as front:
        yield front


def test_a_token_allows_no_more_than_its_user_and_itself(front: Front) -> None:
    viewer, nlp = front.token("otto", "viewer"), front.token("otto", "", "vision")
    assert front.ask("", "GET", "/v1/jobs/hers", token=viewer).status == 200
    assert front.ask("", "POST", "/v1/jobs/hers/hold", token=viewer).status == 403
    assert front.ask("", "GET", "/v1/jobs/hers", token=nlp).status == 404
    assert front.ask("", "POST", "/v1/nodes/n0/cordon", {}, token=nlp).status == 403
    wide = front.token("eve", "operator")
    assert front.ask("", "GET", "/v1/metrics".replace("/v1", ""), token=wide).status == 403
    own = front.token("bob", "viewer")  # a viewer sees all; bob does not
    assert front.ask("", "GET", "/v1/jobs/behind", token=own).status == 200
    assert front.ask("", "GET", "/v1/jobs/hers", token=own).status == 404
    assert front.ask("", "GET", "/v1/jobs/behind/logs", token=own).status == 403
    made = front.ask("", "POST", "/v1/tokens", {"role": "user"}, token=own)
    assert (made.status, "more than" in made.json["detail"]) == (403, True)
    assert front.ask("", "POST", "/v1/tokens", {"role": "viewer"}, token=own).status == 201


def test_to_operate_is_a_power_over_the_whole_site() -> None:
    scope = grant_of("operator", "research")
    assert narrowed((grant_of("operator"),), scope) == (grant_of("queue_admin", "research"),)
    assert narrowed((grant_of("user", "vision"),), scope) == ()
    assert (
        narrowed((grant_of("user", "research"),), grant_of("viewer", "research/nlp"))[0].queue
        == "research/nlp"
    )


def test_tokens_are_listed_without_secrets_and_revoked_at_once(front: Front) -> None:
    made = front.ask("bob", "POST", "/v1/tokens", {"expires_s": 60}).json
    assert made["token"].startswith("gantree_") and made["user"] == "bob"
    listed = front.ask("bob", "GET", "/v1/tokens")
    assert made["token"] not in listed.text and made["id"] in listed.text
    assert {row["user"] for row in listed.json["tokens"]} == {"bob"}
    assert front.ask("eve", "DELETE", f"/v1/tokens/{made['id']}").status == 404
    assert front.ask("", "GET", "/v1/session", token=made["token"]).json["user"] == "bob"
    assert front.ask("bob", "DELETE", f"/v1/tokens/{made['id']}").status == 200
    assert front.ask("", "GET", "/v1/session", token=made["token"]).status == 401
    assert json.dumps(made["token"]) not in front.ask("otto", "GET", "/v1/audit").text


def test_a_token_that_leaked_makes_none_that_outlives_it(front: Front) -> None:
    first = front.ask("otto", "POST", "/v1/tokens", {"user": "bob", "expires_s": 600}).json
    again = first
    for _ in range(2):
        again = front.ask("", "POST", "/v1/tokens", {}, token=again["token"]).json
        assert again["expires_at"] == first["expires_at"]
    entered = front.ask("", "POST", "/v1/session", {"token": first["token"]})
    cookie = {
        "cookie": entered.headers["set-cookie"].partition(";")[0],
        "origin": "http://gantree.test",
    }
    by_page = front.ask("", "POST", "/v1/tokens", {"expires_s": 9e6}, headers=cookie).json
    assert by_page["expires_at"] == first["expires_at"]
    assert front.ask("otto", "DELETE", f"/v1/tokens/{first['id']}").status == 200
    for made in (first, again, by_page):
        assert front.ask("", "GET", "/v1/session", token=made["token"]).status == 401
    for_others = front.ask("otto", "POST", "/v1/tokens", {"user": "bob"}).json
    assert for_others["expires_at"] is None
    odd = front.ask("otto", "POST", "/v1/tokens", {"user": "a\nb"})
    assert odd.status == 422 and "printable" in odd.text
