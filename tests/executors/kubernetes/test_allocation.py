"""Which devices a wish gets: the same answer as by trying everything, and never what is held."""

from collections.abc import Iterator
from itertools import permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.executors.kubernetes.devices.allocation import Given, Stock, allocate, copies
from gantree.executors.kubernetes.devices.claims import Ask, Kind, Rule, Wish, is_of
from gantree.executors.kubernetes.devices.slices import Device, DeviceKey, NodeDevices
from gantree.executors.kubernetes.pods.device_rules import Facts
from support.examples import examples

GPU, NIC = Kind(('device.driver == "gpu.x"',)), Kind(('device.driver == "nic.x"',))
SETS = {("gpu.x", "p", f"s{number}"): 2.0 for number in range(2)}


def device(driver: str, number: int, root: int, uses: tuple[int, int] | None) -> Device:
    """uses: the number of a set of counters, and how much of it."""
    name = f"d{number}"
    consumes = (
        () if uses is None else ((("gpu.x", "p", f"s{uses[0]}"), (("part", float(uses[1])),)),)
    )
    return Device((driver, "p", name), Facts(driver, (("x/root", root),)), consumes)


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
def wishes(draw: st.DrawFn) -> Wish:
    counts = st.integers(1, 2) | st.none()

    def ask(name: str) -> Ask:
        return Ask(name, "c", draw(st.sampled_from((GPU, NIC))), draw(counts))

    requests = [
        (0, tuple(ask(f"r{n}/{way}") for way in range(draw(st.integers(1, 2)))))
        for n in range(draw(st.integers(1, 2)))
    ]
    names = draw(st.sampled_from((frozenset[str](), frozenset({"r0"}))))
    rules = draw(
        st.sampled_from(((), (Rule(0, names, "x/root", True),), (Rule(0, names, "x/root", False),)))
    )
    return Wish(tuple(requests), rules)


def holds(wish: Wish, there: NodeDevices, held: set[DeviceKey], answer: list[Given]) -> bool:
    """Whether an answer is what a wish asks for."""
    taken = [each.device for each in answer]
    if len(set(taken)) < len(taken) or any(device.key in held for device in taken):
        return False
    used = [device for device in there.devices if device.key in held or device in taken]
    for key, amount in SETS.items():
        if sum(a for d in used for k, c in d.consumes if k == key for _, a in c) > amount:
            return False
    for rule in wish.rules:
        values = [
            e.device.attribute(rule.attribute) for e in answer if rule.binds(e.claim, e.ask.name)
        ]
        if len(set(values)) != (min(1, len(values)) if rule.is_match else len(values)):
            return False
    return all(is_of(each.ask.kind, each.device) for each in answer)


def by_trying(wish: Wish, there: NodeDevices, held: set[DeviceKey]) -> Iterator[list[Given]]:
    """Every answer, by all orders of all devices."""
    for ways in product(*(ways for _, ways in wish.requests)):
        slots: list[Ask] = []
        for ask in ways:
            of_kind = sum(is_of(ask.kind, device) for device in there.devices)
            slots += [ask] * (of_kind if ask.count is None else ask.count)
            if ask.count is None and of_kind == 0:
                break
        else:
            for chosen in permutations(there.devices, len(slots)):
                answer = [Given(0, a, d) for a, d in zip(slots, chosen, strict=True)]
                if holds(wish, there, held, answer):
                    yield answer


@given(nodes(), wishes(), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_an_answer_is_found_where_there_is_one(
    there: NodeDevices, wish: Wish, data: st.DataObject
) -> None:
    free = Stock.of(there, {})
    held: set[DeviceKey] = set()
    for device in there.devices:
        if free.has(device) and data.draw(st.booleans()):
            held.add(device.key)
            free.take(device)
    stock = Stock.of(there, dict.fromkeys(held))
    found = allocate(wish, stock)
    expected = next(by_trying(wish, there, held), None)
    assert (found is None) == (expected is None)
    assert found is None or holds(wish, there, held, found)
    assert set(stock.devices) == {d.key for d in there.devices} - held


def test_the_devices_that_were_named_come_first_then_partitions_of_what_is_begun() -> None:
    devices = tuple(device("gpu.x", n, 0, (n // 2, 1)) for n in range(4))
    there = NodeDevices(devices, (), tuple((key, (("part", 2.0),)) for key in SETS))
    wish = Wish(((0, (Ask("r", "c", GPU, 1),)),))
    held = {devices[2].key: None}
    ((begun,),) = [allocate(wish, Stock.of(there, held)) or []]
    assert begun.device is devices[3]
    ((named,),) = [allocate(wish, Stock.of(there, held), [devices[1].key]) or []]
    assert named.device is devices[1]
    assert copies(wish, Stock.of(there, held)) == 3
