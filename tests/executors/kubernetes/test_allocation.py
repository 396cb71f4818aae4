"""Which devices a wish gets: the same answer as by trying everything, and never what is held."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.executors.kubernetes.devices.allocation import (
    DeviceResult,
    FreeDevices,
    allocate,
    count_allocations,
)
from gantree.executors.kubernetes.devices.claims import (
    ClaimRequests,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    is_eligible,
)
from gantree.executors.kubernetes.devices.device import (
    Capacity,
    Counters,
    Device,
    DeviceKey,
    NodeDevices,
)
from gantree.executors.kubernetes.pods.device_rules import Facts
from support.examples import examples

GPU, NIC = (
    DeviceSelector(('device.driver == "gpu.x"',)),
    DeviceSelector(('device.driver == "nic.x"',)),
)
SETS = {("gpu.x", "p", f"s{number}"): 2.0 for number in range(2)}


def device(driver: str, number: int, root: int, uses: tuple[int, int] | None) -> Device:
    """uses: the number of a set of counters, and how much of it."""
    name = f"d{number}"
    consumes = (
        () if uses is None else ((("gpu.x", "p", f"s{uses[0]}"), (("part", float(uses[1])),)),)
    )
    return Device((driver, "p", name), Facts(driver, (("x/root", root),)), consumes=consumes)


@st.composite
def nodes(draw: st.DrawFn) -> NodeDevices:
    drivers = draw(st.lists(st.sampled_from(("gpu.x", "gpu.x", "nic.x")), max_size=6))
    uses = st.none() | st.tuples(st.integers(0, 1), st.integers(1, 2))
    devices = tuple(
        device(driver, number, draw(st.integers(0, 2)), draw(uses))
        for number, driver in enumerate(drivers)
    )
    counters = tuple((key, (("part", amount),)) for key, amount in SETS.items())
    return NodeDevices(devices, (), counters)


@st.composite
def wishes(draw: st.DrawFn) -> ClaimRequests:
    counts = st.integers(1, 2) | st.none()

    def request(name: str) -> DeviceRequest:
        return DeviceRequest(name, "c", draw(st.sampled_from((GPU, NIC))), draw(counts))

    requests = [
        (0, tuple(request(f"r{n}/{way}") for way in range(draw(st.integers(1, 2)))))
        for n in range(draw(st.integers(1, 2)))
    ]
    names: tuple[str, ...] = draw(st.sampled_from(((), ("r0",))))
    constraints = draw(
        st.sampled_from(
            (
                (),
                (DeviceConstraint(0, names, "x/root", True),),
                (DeviceConstraint(0, names, "x/root", False),),
            )
        )
    )
    return ClaimRequests(tuple(requests), constraints)


def holds(
    claim_requests: ClaimRequests,
    there: NodeDevices,
    held: set[DeviceKey],
    answer: list[DeviceResult],
) -> bool:
    """Whether an answer is what a wish asks for."""
    taken = [each.device for each in answer]
    if len(set(taken)) < len(taken) or any(device.key in held for device in taken):
        return False
    used = [device for device in there.devices if device.key in held or device in taken]
    for key, amount in SETS.items():
        if sum(a for d in used for k, c in d.consumes if k == key for _, a in c) > amount:
            return False
    for rule in claim_requests.constraints:
        values = [
            e.device.attribute(rule.attribute)
            for e in answer
            if rule.binds(e.claim, e.request.name)
        ]
        if len(set(values)) != (min(1, len(values)) if rule.is_match else len(values)):
            return False
    return all(is_eligible(each.request.selector, each.device) for each in answer)


def by_trying(
    claim_requests: ClaimRequests, there: NodeDevices, held: set[DeviceKey]
) -> Iterator[list[DeviceResult]]:
    """Every answer, by all orders of all devices."""
    for ways in product(*(ways for _, ways in claim_requests.requests)):
        slots: list[DeviceRequest] = []
        for request in ways:
            of_kind = sum(is_eligible(request.selector, device) for device in there.devices)
            slots += [request] * (of_kind if request.count is None else request.count)
            if request.count is None and of_kind == 0:
                break
        else:
            for chosen in permutations(there.devices, len(slots)):
                answer = [DeviceResult(0, a, d) for a, d in zip(slots, chosen, strict=True)]
                if holds(claim_requests, there, held, answer):
                    yield answer


@given(nodes(), wishes(), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_an_answer_is_found_where_there_is_one(
    there: NodeDevices, claim_requests: ClaimRequests, data: st.DataObject
) -> None:
    free = FreeDevices.of(there, {})
    held: set[DeviceKey] = set()
    for device in there.devices:
        if free.has(device) and data.draw(st.booleans()):
            held.add(device.key)
            free.take(device)
    stock = FreeDevices.of(there, dict.fromkeys(held, ()))
    found = allocate(claim_requests, stock)
    expected = next(by_trying(claim_requests, there, held), None)
    assert (found is None) == (expected is None)
    assert found is None or holds(claim_requests, there, held, found)
    assert set(stock.devices) == {d.key for d in there.devices} - held


def test_the_devices_that_were_named_come_first_then_partitions_of_what_is_begun() -> None:
    devices = tuple(device("gpu.x", n, 0, (n // 2, 1)) for n in range(4))
    there = NodeDevices(devices, (), tuple((key, (("part", 2.0),)) for key in SETS))
    claim_requests = ClaimRequests(((0, (DeviceRequest("r", "c", GPU, 1),)),))
    held: dict[DeviceKey, Counters] = {devices[2].key: ()}
    ((begun,),) = [allocate(claim_requests, FreeDevices.of(there, held)) or []]
    assert begun.device is devices[3]
    ((named,),) = [allocate(claim_requests, FreeDevices.of(there, held), [devices[1].key]) or []]
    assert named.device is devices[1]
    assert count_allocations(claim_requests, FreeDevices.of(there, held)) == 3


def shared(number: int, Gbps: float, uses: tuple[int, int] | None = None) -> Device:
    """A device of which claims have shares."""
    plain = device("nic.x", number, 0, uses)
    capacity = Capacity("Gbps", Gbps, default=1.0)
    return replace(plain, capacity=(capacity,), facts=replace(plain.facts, is_shared=True))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.lists(st.integers(1, 5), max_size=6))
@settings(max_examples=examples(60), deadline=None)
def test_shares_are_given_until_no_device_has_enough_left(
    sizes: list[int], asked: list[int]
) -> None:
    devices = tuple(shared(number, float(size)) for number, size in enumerate(sizes))
    there = NodeDevices(devices)
    left = {each.key: float(size) for each, size in zip(devices, sizes, strict=True)}
    held: dict[DeviceKey, Counters] = {}
    for share in asked:
        selector = DeviceSelector(NIC.expressions, (("nic.x/Gbps", float(share)),))
        wish = ClaimRequests(((0, (DeviceRequest("r", "c", selector),)),))
        count = count_allocations(wish, FreeDevices.of(there, held))
        assert count == sum(amount // share for amount in left.values())
        found = allocate(wish, FreeDevices.of(there, held))
        assert (found is None) == (count == 0)
        for each in found or ():
            left[each.device.key] -= share
            held[each.device.key] = (
                ("Gbps", sizes[devices.index(each.device)] - left[each.device.key]),
            )


def test_a_shared_device_draws_on_counters_with_its_first_share_alone() -> None:
    devices = shared(0, 4.0, (0, 2)), device("gpu.x", 1, 0, (0, 1))
    there = NodeDevices(devices, (), tuple((key, (("part", 2.0),)) for key in SETS))
    free = FreeDevices.of(there, {})
    one = (("Gbps", 1.0),)
    for _ in range(2):
        assert free.has(devices[0], one)
        free.take(devices[0], one)
    assert not free.has(devices[1])
    free.give_back(devices[0], one)
    assert not free.has(devices[1])
    free.give_back(devices[0], one)
    assert free.has(devices[1])
    free.take(devices[1])
    assert not free.has(devices[0], one)
