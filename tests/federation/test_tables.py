"""The tables of routers of all clusters as the front keeps them, by versions."""

from gantree.federation.api.tables import Tables
from gantree.federation.driver import now_s
from gantree.federation.front import Front
from gantree.federation.jobs.store import Store
from support.federation.lives import federation


def service(*, draining: bool) -> dict[str, object]:
    replica = {"replica": "chat.1", "place": ["n0"], "ready": True, "draining": draining}
    return {"service": "chat", "wanted": 1, "replicas": [replica]}


def test_a_router_knows_of_each_cluster_what_was_in_its_table() -> None:
    world = federation("a", "b")
    front = Front(world, Store(":memory:"), now_s(), lambda: 0.0)
    tables = Tables(front, dict.fromkeys(("a", "b")), 100)  # type: ignore[arg-type]  # nobody is called

    def known(version: int) -> list[tuple[str, str]]:
        return [(each.cluster, each.version) for each in tables.known_by(str(version))]

    tables.take("a", {"version": "7", "services": [service(draining=False)]})
    first = tables.version
    tables.take("b", {"version": "3", "services": []})  # the same for routers
    assert tables.version == first
    assert known(first) == [("a", "7"), ("b", "3")]
    tables.take("a", {"version": "8", "services": [service(draining=True)]})
    assert known(tables.version) == [("a", "8"), ("b", "3")]
    assert known(first) == [
        ("a", "7"),
        ("b", "3"),
    ]  # a router that has it has not heard of the drain
    assert known(99) == [("a", "0"), ("b", "0")]  # of a front before this one
