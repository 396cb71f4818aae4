"""MIG profiles: tables against real prints, and what fits beside what against a plain count of slices."""

import re
from collections import Counter
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.topology.hardware.mig import TABLES, MigInstance, MigProfile, MigTable, mig_table
from support.yaml_text import read_yaml

SAMPLES = Path(__file__).parents[2] / ".." / "shared" / "data" / "topology" / "mig"
needs_samples = pytest.mark.skipif(not SAMPLES.exists(), reason="the MIG samples are not at hand")

_PLACEMENTS = re.compile(r"Profile ID +(\d+) Placements? ?: \{([\d,]+)\}:(\d+)")
_A30_PRINT = """\
GPU  0 Profile ID 14 Placements: {0,1,2,3}:1
GPU  0 Profile ID 21 Placements: {0,1,2,3}:1
GPU  0 Profile ID  5 Placements: {0,2}:2
GPU  0 Profile ID  6 Placements: {0,2}:2
GPU  0 Profile ID  0 Placement : {0}:4
"""
"""`nvidia-smi mig -lgipp` of an A30, driver 535.183.01 (a public note; its lgip print names the profiles)."""
_PROFILE_OF_ID = {
    8: {19: "1g", 20: "1g+me", 15: "1g.2", 14: "2g", 9: "3g", 5: "4g", 0: "7g"},
    4: {14: "1g", 21: "1g+me", 5: "2g", 6: "2g+me", 0: "4g"},
}


def _short(table: MigTable) -> dict[str, tuple[tuple[int, ...], int]]:
    """Starts and size by what a profile is called on every GPU: "1g.2" is 1g with two memory slices."""
    found = {}
    for profile in table.profiles:
        double = profile.memory_slices == 2 and profile.compute_slices == 1
        name = f"{profile.compute_slices}g" + ("+me" * profile.name.endswith("+me")) + ".2" * double
        found[name] = (profile.starts, profile.memory_slices)
    return found


def _printed(text: str, slices: int) -> dict[str, tuple[tuple[int, ...], int]]:
    rows = _PLACEMENTS.findall(text)
    assert rows
    return {
        _PROFILE_OF_ID[slices][int(number)]: (tuple(map(int, starts.split(","))), int(size))
        for number, starts, size in rows
    }


@needs_samples
@pytest.mark.parametrize(
    ("gpu", "sample"),
    [
        ("A100-40GB", "lgipp-a100-40gb-docs.txt"),
        ("A100-40GB", "lgipp-a100-40gb-thetagpu-olddriver.txt"),
        ("H100-80GB", "lgipp-h100-and-h100nvl.txt"),
        ("H100-94GB", "lgipp-h100-and-h100nvl.txt"),
    ],
)
def test_places_are_those_that_real_gpus_print(gpu: str, sample: str) -> None:
    table = mig_table(gpu)
    assert table is not None and not table.places_inferred
    printed = _printed((SAMPLES / sample).read_text(encoding="utf-8"), 8)
    ours = _short(table)
    assert printed == {name: ours[name] for name in printed}


def test_places_of_a30_are_those_that_a_real_one_prints() -> None:
    assert _short(TABLES["A30-24GB"]) == _printed(_A30_PRINT, 4)


@pytest.mark.parametrize(
    ("gpu", "profile", "most"),
    [
        # NVIDIA's MIG user guide: number of instances available.
        ("A100-40GB", "1g.5gb", 7),
        ("A100-40GB", "1g.5gb+me", 1),
        ("A100-40GB", "1g.10gb", 4),
        ("A100-40GB", "3g.20gb", 2),
        ("A800-80GB", "2g.20gb", 3),
        ("H800-80GB", "4g.40gb", 1),
        ("H100-94GB", "3g.47gb", 2),
        ("H20-96GB", "7g.96gb", 1),
        ("H200-141GB", "1g.35gb", 4),
        ("B200-180GB", "1g.45gb", 4),
        ("A30-24GB", "1g.6gb", 4),
        ("A30-24GB", "2g.12gb+me", 1),
        ("RTXPRO6000-96GB", "1g.24gb+gfx", 4),
        ("RTXPRO6000-96GB", "1g.24gb+me", 1),
        ("RTXPRO6000-96GB", "2g.48gb+me.all", 1),
        ("RTXPRO6000-96GB", "2g.48gb-me", 2),
        ("RTXPRO5000-48GB", "1g.24gb", 2),
        ("RTXPRO4500-32GB", "2g.32gb+gfx", 1),
    ],
)
def test_as_many_instances_of_one_profile_fit_as_the_guide_says(
    gpu: str, profile: str, most: int
) -> None:
    table = mig_table(gpu)
    assert table is not None
    assert table.arranged([profile] * most) is not None
    assert table.arranged([profile] * (most + 1)) is None


@pytest.mark.parametrize(
    ("gpu", "profiles", "fit"),
    [
        ("H100-80GB", ["3g.40gb", "4g.40gb"], True),
        ("H100-80GB", ["3g.40gb", "3g.40gb"], True),
        ("H100-80GB", ["3g.40gb", "3g.40gb", "1g.10gb"], False),  # all memory slices are taken
        ("H100-80GB", ["4g.40gb", "2g.20gb", "1g.10gb"], True),
        ("H100-80GB", ["4g.40gb", "2g.20gb", "2g.20gb"], False),  # 2g cannot start at 6
        ("H100-80GB", ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], True),
        ("H100-80GB", ["1g.10gb+me", "1g.10gb"], True),
        ("H100-80GB", ["1g.20gb"] * 3 + ["2g.20gb"], True),
        ("H100-80GB", ["1g.20gb"] * 4 + ["1g.10gb"], False),
        ("A30-24GB", ["1g.6gb+me", "2g.12gb+me"], False),  # one such engine
        ("A30-24GB", ["1g.6gb", "1g.6gb+me", "2g.12gb"], True),
        ("RTXPRO6000-96GB", ["2g.48gb+me.all", "1g.24gb-me", "1g.24gb-me"], True),
        ("RTXPRO6000-96GB", ["2g.48gb+me.all", "1g.24gb"], False),
        ("RTXPRO6000-96GB", ["2g.48gb", "1g.24gb+gfx", "1g.24gb+me"], True),
    ],
)
def test_which_combinations_fit(gpu: str, profiles: list[str], fit: bool) -> None:
    table = mig_table(gpu)
    assert table is not None
    assert (table.arranged(profiles) is not None) == fit


def test_where_an_instance_fits_depends_on_what_is_there() -> None:
    table = TABLES["H100-80GB"]
    assert table.placements("3g.40gb") == (0, 4)
    assert table.fits([], "1g.10gb") == (0, 1, 2, 3, 4, 5, 6)
    assert table.fits([MigInstance("3g.40gb", 4)], "4g.40gb") == (0,)
    assert table.fits([MigInstance("3g.40gb", 0)], "4g.40gb") == ()
    assert table.fits([MigInstance("1g.20gb", 2)], "2g.20gb") == (0, 4)
    assert table.fits([MigInstance("1g.10gb+me", 0)], "1g.10gb+me") == ()


def test_compute_slices_bind_where_memory_would_leave_room() -> None:
    """On today's GPUs the places alone keep compute within bounds; the rule does not lean on that."""
    narrow = MigTable("narrow", 4, 3, 0, (MigProfile("2g.1gb", 2, 1, (0, 1, 2, 3), 4),))
    assert narrow.fits([], "2g.1gb") == (0, 1, 2, 3)
    assert narrow.fits([MigInstance("2g.1gb", 0)], "2g.1gb") == ()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda table: table.placements("3g.40g"), "Did you mean `3g.40gb`"),
        (lambda table: table.placements("?"), "Known: 1g.10gb"),
        (lambda table: table.fits([MigInstance("3g.40gb", 1)], "1g.10gb"), "only at 0, 4"),
    ],
)
def test_profiles_and_places_that_do_not_exist_are_bad_input(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(BadInput, match=re.escape(words)):
        call(TABLES["H100-80GB"])


def test_gpus_without_mig_have_no_table() -> None:
    assert [mig_table(gpu) for gpu in ("V100-32GB", "MI210-64GB", "A100", None)] == [None] * 4


def _plain_fit(table: MigTable, wanted: list[str]) -> bool:
    """Try every combination of starts, slice by slice."""
    profiles = [table.profile(name) for name in wanted]
    shared = (
        sum(profile.compute_slices for profile in profiles) <= table.compute_slices
        and sum(profile.media for profile in profiles) <= table.media_engines
        and sum(profile.extra for profile in profiles) <= 1
        and all(count <= table.profile(name).most for name, count in Counter(wanted).items())
    )
    return shared and any(
        len({slice_ for start, p in zip(starts, profiles, strict=True)
             for slice_ in range(start, start + p.memory_slices)})
        == sum(profile.memory_slices for profile in profiles)
        for starts in product(*(profile.starts for profile in profiles))
    )  # fmt: skip


@given(st.sampled_from(sorted(TABLES)), st.data())
def test_arrangements_are_found_exactly_where_a_plain_search_finds_one(
    name: str, data: st.DataObject
) -> None:
    table = TABLES[name]
    known = [profile.name for profile in table.profiles]
    wanted = data.draw(st.lists(st.sampled_from(known), max_size=4))
    found = table.arranged(wanted)
    assert (found is not None) == _plain_fit(table, wanted)
    if found is not None:
        assert [instance.profile for instance in found] == wanted
        for order in list(permutations(found))[:6]:
            for at, instance in enumerate(order):
                assert instance.start in table.fits(order[:at], instance.profile)


def _wishes() -> list[tuple[str, dict[str, int]]]:
    if not SAMPLES.exists():
        return []
    text = (SAMPLES / "mig-parted-config-default.yaml").read_text(encoding="utf-8")
    entries = [
        (name, entry.get("mig-devices") or {})
        for name, config in read_yaml(text)["mig-configs"].items()
        for entry in config
    ]
    return [(name, devices) for name, devices in entries if devices]


@needs_samples
@pytest.mark.parametrize(("name", "devices"), _wishes(), ids=str)
def test_configurations_of_mig_parted_fit_and_fill(name: str, devices: dict[str, int]) -> None:
    """Each fits on some GPU that has its profiles, and no more instances of a single profile do there."""
    wanted = [profile for profile, count in devices.items() for _ in range(count)]
    having = [
        table
        for table in TABLES.values()
        if devices.keys() <= {profile.name for profile in table.profiles}
    ]
    fitting = [table for table in having if table.arranged(wanted) is not None]
    assert fitting
    if len(devices) == 1:
        assert any(table.arranged([*wanted, wanted[0]]) is None for table in fitting)
