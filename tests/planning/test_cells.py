"""Cells at home: binding late, guests leaving, handing back; small fabrics drawn as pictures."""

from dataclasses import replace

import pytest

from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement
from gantree.planning.cells.home import (
    CellDomains,
    HomePlan,
    at_home_in_place,
    home,
    keeps_cells,
    preferred_for_guests,
    releasable,
    view_of,
)
from gantree.policy.rules import QueueRule
from gantree.testing.builders import job, machine
from gantree.testing.pictures import drawn, picture_of

Bound = dict[tuple[str, str, int], str]


def rules(**cells: tuple[tuple[str, int], ...]) -> tuple[QueueRule, ...]:
    return tuple(QueueRule(path, cells=owned) for path, owned in cells.items())


def seen(
    picture: str,
    queues: tuple[QueueRule, ...],
    wanted: Job,
    queue: str = "a",
    *,
    bound: Bound | None = None,
    homes: dict[str, str] | None = None,
    fixed: str = "",
) -> tuple[HomePlan | None, str]:
    """The plan for a job, and the picture once it is carried out; others than `homes` and `fixed` are guests."""
    occupancy = drawn(picture)
    cell_domains = CellDomains.of(queues, occupancy.fabric)
    at_home = homes or {}
    harm = {o: 1.0 for o in occupancy.owners if o not in at_home and o not in fixed}
    plan = home(view_of(occupancy, cell_domains, bound or {}, at_home, harm), queue, wanted)
    if plan is None:
        return None, ""
    for owner in plan.evict:
        occupancy.give_back(owner)
    occupancy.take("Z", plan.placement.members)
    return plan, picture_of(occupancy)


def test_a_cell_is_bound_to_idle_room_before_a_guest_is_evicted() -> None:
    plan, after = seen(
        """
        l0: n0 gggg n1 ....
        l1: n2 .... n3 gggg
        """,
        rules(a=(("node", 1),), b=(("leaf", 1),)),
        job("w", 1, 4),
    )
    assert plan is not None and plan.evict == ()
    assert after == "l0: n0 gggg n1 ZZZZ\nl1: n2 .... n3 gggg"
    assert plan.bind == (("node", 0, "n1"),)


def test_a_queue_gets_its_whole_domain_back_from_guests_that_were_scattered_over_it() -> None:
    plan, after = seen(
        """
        l0: n0 g... n1 .h..
        l1: n2 i.i. n3 ..ii
        """,
        rules(a=(("leaf", 1),), b=(("leaf", 1),)),
        job("w", 2, 4, required="leaf"),
    )
    assert plan is not None and sorted(plan.evict) in (["g", "h"], ["i"])
    assert plan.bind[0][:2] == ("leaf", 0)
    assert "ZZZZ" in after


def test_only_guests_whose_room_is_used_leave_a_cell() -> None:
    plan, after = seen("l0: n0 gghh n1 iiii", rules(a=(("leaf", 1),)), job("w", 1, 2))
    assert plan is not None and len(plan.evict) == 1
    assert after.count("Z") == 2


def test_a_cell_is_not_bound_where_that_would_break_the_last_place_of_a_wider_one() -> None:
    plan, _ = seen(
        """
        l0: n0 .... n1 ....
        l1: n2 FF.. n3 ....
        """,
        rules(a=(("node", 1),), b=(("leaf", 1),)),
        job("w", 1, 4),
        fixed="F",
    )
    assert plan is not None and plan.bind == (("node", 0, "n3"),)


def test_no_more_than_the_queues_cells_hold_is_at_home() -> None:
    queues = rules(a=(("node", 1), ("gpus", 1)), b=(("node", 1),))
    picture = "l0: n0 HH.. n1 .... n2 ...."
    at = {"H": "a"}
    bound = {("a", "node", 0): "n0"}
    plan, _ = seen(picture, queues, job("w", 1, 4), bound=bound, homes=at)
    assert plan is None
    plan, after = seen(picture, queues, job("w", 3, 1), bound=bound, homes=at)
    assert plan is not None and after.startswith("l0: n0 HHZZ")
    assert [(tier, number) for tier, number, _ in plan.bind] == [("gpus", 0)]


def test_a_domain_with_a_broken_node_is_no_cell() -> None:
    plan, _ = seen(
        """
        l0: n0 .... n1! ....
        l1: n2 gggg n3 hhhh
        """,
        rules(a=(("leaf", 1),)),
        job("w", 1, 4),
    )
    assert plan is not None and plan.bind == (("leaf", 0, "l1"),)


def test_what_a_lost_node_takes_the_later_queues_of_the_policy_lose() -> None:
    occupancy = drawn("l0: n0! .... n1 .... n2 ....")
    cell_domains = CellDomains.of(rules(a=(("node", 2),), b=(("node", 1),)), occupancy.fabric)
    view = view_of(occupancy, cell_domains, {}, {}, {})
    assert view.lost == (("b", "node", 0),)
    assert home(view, "b", job("w", 1, 1)) is None
    assert home(view, "a", job("w", 2, 4)) is not None


def test_sharing_anomaly_guests_spread_over_all_nodes_do_not_take_a_tenants_quota() -> None:
    """HiveD, section 2: with quota in counts, scattered jobs of others leave a tenant GPUs but no whole node."""
    picture = "l0: n0 g... n1 g... n2 h... n3 h..."
    plan, after = seen(picture, rules(a=(("node", 2),), b=(("node", 2),)), job("w", 2, 4))
    assert plan is not None and len(plan.evict) == 1
    assert after.count("ZZZZ") == 2
    fixed_plan, _ = seen(picture, rules(a=(("node", 2),)), job("w", 2, 4), fixed="g")
    assert fixed_plan is not None and fixed_plan.evict == ("h",)


def test_a_cell_is_let_go_when_its_last_home_job_has_left() -> None:
    occupancy = drawn("l0: n0 H... n1 g...")
    cell_domains = CellDomains.of(rules(a=(("node", 2),)), occupancy.fabric)
    bound = {("a", "node", 0): "n0", ("a", "node", 1): "n1", ("a", "node", 7): "n1"}
    view = view_of(occupancy, cell_domains, bound, {"H": "a"}, {"g": 1.0})
    assert releasable(view) == (("a", "node", 7), ("a", "node", 1))


def test_a_guest_on_room_that_its_queues_cell_could_have_is_home_without_moving() -> None:
    occupancy = drawn("l0: n0 gggg n1 h...")
    cell_domains = CellDomains.of(rules(a=(("node", 1), ("gpus", 1))), occupancy.fabric)
    view = view_of(occupancy, cell_domains, {}, {}, {"g": 1.0, "h": 1.0})
    assert at_home_in_place(view, "a", "g") == (("node", 0, "n0"),)
    assert at_home_in_place(view, "a", "h") == (("gpus", 0, "n1/gpu0"),)


def test_a_guest_is_home_without_moving_where_a_loose_cell_would_break_up_its_node() -> None:
    occupancy = drawn("l0: n0 .... n1 ggg.")
    cell_domains = CellDomains.of(rules(a=(("node", 1), ("gpus", 1))), occupancy.fabric)
    view = view_of(occupancy, cell_domains, {}, {}, {"g": 1.0})
    assert at_home_in_place(view, "a", "g") == (("node", 0, "n1"),)


def test_a_guest_in_a_bound_cell_of_another_queue_is_not_home_there() -> None:
    occupancy = drawn("l0: n0 H.gg n1 ....")
    cell_domains = CellDomains.of(rules(a=(("gpus", 2),), b=(("node", 1),)), occupancy.fabric)
    view = view_of(occupancy, cell_domains, {("b", "node", 0): "n0"}, {"H": "b"}, {"g": 1.0})
    assert at_home_in_place(view, "a", "g") is None
    plan = home(view.without("g"), "a", job("g", 1, 2))
    assert plan is not None and plan.placement.members[0].node == "n1"


def test_a_guest_is_not_home_where_its_place_would_break_up_what_others_are_promised() -> None:
    occupancy = drawn("l0: n0 .... n1 g...\nl1: n2 F... n3 ....")
    cell_domains = CellDomains.of(rules(a=(("gpus", 4),), b=(("leaf", 1),)), occupancy.fabric)
    view = view_of(occupancy, cell_domains, {}, {}, {"g": 1.0})
    assert at_home_in_place(view, "a", "g") is None


def test_guests_are_sent_where_no_cell_needs_anything() -> None:
    occupancy = drawn("l0: n0 .... n1 ....\nl1: n2 .... n3 ....")
    cell_domains = CellDomains.of(rules(a=(("leaf", 1),), b=(("node", 1),)), occupancy.fabric)
    view = view_of(occupancy, cell_domains, {}, {}, {})
    assert int(preferred_for_guests(view).sum()) == 1


def test_work_that_is_never_evicted_may_not_break_the_last_place_of_a_cell() -> None:
    occupancy = drawn("l0: n0 .... n1 ....\nl1: n2 F... n3 ....")
    cell_domains = CellDomains.of(rules(a=(("leaf", 1),)), occupancy.fabric)
    view = view_of(occupancy, cell_domains, {}, {}, {})
    assert not keeps_cells(view, [MemberPlacement("worker", 0, "n0", (0,))])
    assert keeps_cells(view, [MemberPlacement("worker", 0, "n3", (0,))])
    bound = view_of(occupancy, cell_domains, {("a", "leaf", 0): "l0"}, {}, {})
    assert not keeps_cells(bound, [MemberPlacement("worker", 0, "n0", (0,))])


def test_cells_that_do_not_fit_the_fabric_are_refused_with_queue_and_tier() -> None:
    fabric = drawn("l0: n0 .... n1 ....").fabric
    with pytest.raises(BadInput, match="queue b: 2 cells of tier node"):
        CellDomains.of(rules(a=(("node", 1),), b=(("node", 2),)), fabric)
    with pytest.raises(BadInput, match="did you mean 'leaf'"):
        CellDomains.of(rules(a=(("leav", 1),)), fabric)


def test_cells_may_be_domains_inside_a_node() -> None:
    pairs = machine(4, name="m4")
    links = tuple(
        tuple("X" if a == b else "NV4" if a // 2 == b // 2 else "SYS" for b in range(4))
        for a in range(4)
    )
    occupancy = drawn("l0: n0 g.gh n1 gh..", replace(pairs, links=links))
    cell_domains = CellDomains.of(rules(a=(("nvlink", 2),), b=(("node", 1),)), occupancy.fabric)
    view = view_of(occupancy, cell_domains, {}, {}, {"g": 1.0, "h": 1.0})
    plan = home(view, "a", job("w", 1, 2, required="nvlink"))
    assert plan is not None
    assert plan.bind == (("nvlink", 0, "n1/nvlink1"),) and plan.evict == ()
    assert home(view, "a", job("w", 1, 4)) is not None  # both on one node, though not promised
    assert cell_domains.domain("nvlink", "n1/nvlink1") == (1, 3)


def test_a_guest_that_holds_the_cpus_of_a_cell_leaves_too() -> None:
    occupancy = drawn("l0: n0 .... n1 ....", machine(4, cpus=8))
    occupancy.take("g", (MemberPlacement("cpu", 0, "n0", cpus=8),))
    occupancy.take("F", (MemberPlacement("cpu", 0, "n1", cpus=8),))
    cell_domains = CellDomains.of(rules(a=(("node", 2),)), occupancy.fabric)
    wanted = job("w", 1, 4)
    needs = replace(wanted.roles[0], shape=replace(wanted.roles[0].shape, cpus=4.0))
    plan = home(
        view_of(occupancy, cell_domains, {}, {}, {"g": 1.0}), "a", replace(wanted, roles=(needs,))
    )
    assert plan is not None and plan.evict == ("g",)


def test_cells_are_bound_within_one_wider_domain_where_a_gang_asks_for_it() -> None:
    plan, after = seen(
        """
        l0: n0 .... n1 gg..
        l1: n2 .... n3 hhhh
        l2: n4 .... n5 hhhh
        """,
        rules(a=(("node", 2),), b=(("node", 1),)),
        job("w", 2, 4, required="leaf"),
    )
    assert plan is not None and plan.evict == ("g",)
    assert after.splitlines()[0] == "l0: n0 ZZZZ n1 ZZZZ"


def test_the_fewest_gpu_seconds_are_lost() -> None:
    occupancy = drawn("l0: n0 gghh n1 iiii")
    cell_domains = CellDomains.of(rules(a=(("node", 2),)), occupancy.fabric)
    view = view_of(occupancy, cell_domains, {}, {}, {"g": 9.0, "h": 2.0, "i": 5.0})
    small, whole = home(view, "a", job("w", 1, 1)), home(view, "a", job("w", 1, 4))
    assert small is not None and small.evict == ("h",)
    assert whole is not None and whole.evict == ("i",)


def test_a_job_without_gpus_needs_no_cell() -> None:
    plan, _ = seen("l0: n0 ....", rules(a=(("node", 1),)), job("w", 1, 0))
    assert plan is None
