"""The rule in Lua, which HAProxy runs, is the rule in Python."""

import random
from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantree.routing.choice import Candidate, cache_order, choose, session_order
from gantree.routing.prefixes import PrefixTable, prefix_keys
from routing.test_choice import SEEDS, cases
from support.examples import examples
from support.lua_interpreter import Lua, lua_program

many = settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lua]:
    """An interpreter."""
    program = lua_program()
    if program is None:
        pytest.skip("no Lua 5.3 here (package lua5.3)")
    with Lua(program, tmp_path_factory.mktemp("lua")) as running:
        yield running


def _text(value: str) -> str:
    """A string of Lua."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in value.encode()) + '"'


def _list(values: Iterator[str] | list[str]) -> str:
    return "{" + ", ".join(values) + "}"


def _table(candidates: list[Candidate]) -> str:
    return _list([_candidate(each) for each in candidates])


def _candidate(each: Candidate) -> str:
    place = _list([_text(domain) for domain in each.place])
    return (
        f"{{name={_text(each.name)}, hash={crc32(each.name.encode())}, place={place},"
        f" ready={str(each.ready).lower()}, draining={str(each.draining).lower()},"
        f" in_flight={each.in_flight}, concurrency={each.concurrency}, speed={each.speed}}}"
    )


@many
@given(SEEDS)
def test_both_choose_the_same_replica_for_the_same_reason(lua: Lua, seed: int) -> None:
    for table, caller, preferred, turn in cases(seed):
        expected = choose(table, caller, preferred, turn)
        lists = [_list([*map(_text, names)]) for names in (caller, preferred)]
        found = lua.values(f"choice.choose({_table(table)}, {', '.join(lists)}, {turn})")
        assert found == [expected.replica or "nil", expected.reason.value]


@many
@given(SEEDS, st.text(max_size=12))
def test_both_order_replicas_alike_for_a_session(lua: Lua, seed: int, session: str) -> None:
    for table, caller, _, _ in cases(seed):
        words = [_table(table), _list([*map(_text, caller)]), f"crc32({_text(session)})"]
        found = lua.values(f"joined(choice.session_order({', '.join(words)}))")
        assert found == [" ".join(session_order(table, caller, session))]


@many
@given(SEEDS)
def test_both_order_replicas_alike_by_what_they_hold(lua: Lua, seed: int) -> None:
    draw = random.Random(seed)
    for table, caller, _, turn in cases(seed):
        held = {each.name: draw.randint(0, 3) for each in table if draw.random() < 0.8}
        rows = _list([f"[{_text(name)}]={tokens}" for name, tokens in held.items()])
        words = [_table(table), _list([*map(_text, caller)]), rows, str(turn)]
        found = lua.values(f"joined(choice.cache_order({', '.join(words)}))")
        assert found == [" ".join(cache_order(table, caller, held, turn))]


@many
@given(st.binary(max_size=40), st.integers(0, 40))
def test_both_make_the_same_keys_of_a_prompt(lua: Lua, piece: bytes, times: int) -> None:
    text = piece * times
    code = '"' + "".join(f"\\x{byte:02x}" for byte in text) + '"'
    found = lua.values(f"joined(prefixes.keys({code}, crc32))")
    assert found == [" ".join(map(str, prefix_keys(text)))]


@many
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 12), max_size=4), st.sampled_from("abc")), max_size=20
    )
)
def test_both_know_the_same_beginnings(lua: Lua, told: list[tuple[list[int], str]]) -> None:
    known = PrefixTable(most_keys=8)
    code = "(function() local known, found = prefixes.new(8), {} "
    expected = []
    for keys, replica in told:
        expected.append(known.replica(keys) or "-")
        known.record(keys, replica)
        row = _list([*map(str, keys)])
        code += f'found[#found + 1] = prefixes.replica(known, {row}) or "-" '
        code += f'prefixes.record(known, {row}, "{replica}") '
    assert lua.values(code + "return joined(found) end)()") == [" ".join(expected)]
