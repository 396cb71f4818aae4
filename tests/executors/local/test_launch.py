"""Launch records, ports and run directories: all that is decided before a process starts."""

import json
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.executors.local.launch.environment import inherited
from gantree.executors.local.launch.launch_record import launch_record
from gantree.executors.local.launch.master_port import free_port
from gantree.executors.local.launch.visible_gpus import gpu_indices
from gantree.executors.local.run_directory import RunDirectory, order_from_json, order_to_json
from gantree.model.errors import BadInput
from gantree.model.orders import MemberLaunch, StartGang
from gantree.model.placements import GpuChange, MigPart, SharePart
from support.gangs import four_nodes, start_order

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INSTANCES = st.lists(st.builds(MigPart, st.integers(0, 7), TEXT, st.integers(0, 7))).map(tuple)
SHARES = st.builds(
    SharePart, st.integers(0, 7), st.floats(0, 1), st.floats(0, 80), TEXT, st.booleans()
)
MEMBERS = st.builds(
    MemberLaunch,
    role=TEXT,
    rank=st.integers(0, 9),
    node=TEXT,
    node_rank=st.integers(0, 9),
    first_rank=st.integers(0, 99),
    processes=st.integers(1, 8),
    gpus=st.lists(st.integers(0, 7)).map(tuple),
    nics=st.lists(TEXT).map(tuple),
    run=st.lists(TEXT).map(tuple),
    env=st.lists(st.tuples(TEXT, TEXT)).map(tuple),
    workdir=st.none() | TEXT,
    image=st.none() | TEXT,
    cpus=st.floats(0, 512),
    mig=INSTANCES,
    share=st.none() | SHARES,
    devices=st.lists(st.tuples(TEXT, st.integers(1, 4)), max_size=2).map(tuple),
    ranks=st.lists(st.integers(0, 99), max_size=4).map(tuple),
)
CHANGES = st.builds(
    GpuChange,
    TEXT,
    st.integers(0, 7),
    st.none() | st.booleans(),
    INSTANCES,
    INSTANCES,
    st.floats(0, 9),
)
ORDERS = st.builds(
    StartGang,
    id=TEXT,
    job=TEXT,
    attempt=st.integers(0, 99),
    epoch=st.integers(0, 99),
    world_size=st.integers(1, 99),
    members=st.lists(MEMBERS, max_size=3).map(tuple),
    checkpoint_signal=st.none() | TEXT,
    checkpoint_every_s=st.none() | st.floats(0, 1e6),
    checkpoint_path=st.none() | TEXT,
    array_index=st.none() | st.integers(0, 9),
    changes=st.lists(CHANGES, max_size=2).map(tuple),
)


@given(ORDERS)
def test_an_order_comes_back_from_disk_as_it_was(order: StartGang) -> None:
    assert order_from_json(json.loads(json.dumps(order_to_json(order)))) == order


def test_an_order_put_down_before_there_were_rank_maps_is_read() -> None:
    order = start_order("true", members=2, processes=3)
    data = order_to_json(order)
    for member in data["members"]:
        del member["ranks"]
    assert order_from_json(data) == order
    assert [each.rank_of_process for each in order.members] == [(0, 1, 2), (3, 4, 5)]


@given(st.text(max_size=12) | st.text("ab./\\-_\n", max_size=12))
def test_no_job_id_leads_out_of_its_folder(job: str) -> None:
    runs = Path("/state/runs")
    try:
        run = RunDirectory(runs, job, 1)
    except BadInput:
        return
    assert run.path.parent.parent == runs
    assert run.path.parent.name == job
    assert not job.startswith(".")


def test_real_gpus_are_named_as_the_site_says(tmp_path: Path) -> None:
    order = start_order("true", gpus=(2, 0))
    nodes = {node.name: node for node in four_nodes().nodes}
    run = RunDirectory(tmp_path, "j", 1)

    def uuids(node: str, gpus: tuple[int, ...]) -> str:
        return ",".join(f"GPU-{node}-{gpu}" for gpu in gpus)

    for gpu_ids, value in ((gpu_indices, "2,0"), (uuids, "GPU-n0-2,GPU-n0-0")):
        record = launch_record(order, order.members[0], nodes, run, 20_000, {}, gpu_ids, 5.0)
        assert record["env"]["CUDA_VISIBLE_DEVICES"] == value


def test_a_port_that_is_in_use_or_promised_is_passed_over() -> None:
    first = free_port("j", 1, ())
    assert free_port("j", 1, {first}) != first
    with socket.create_server(("127.0.0.1", first)):
        assert free_port("j", 1, ()) != first


@pytest.mark.parametrize(
    ("name", "is_given_on"),
    [
        ("PATH", True),
        ("LC_ALL", True),
        ("LD_LIBRARY_PATH", True),
        ("AWS_SECRET_ACCESS_KEY", False),
        ("RANK", False),
        ("CUDA_MPS_PIPE_DIRECTORY", True),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", False),
    ],
)
def test_jobs_get_only_a_short_list_of_the_daemons_variables(name: str, is_given_on: bool) -> None:
    assert (name in inherited({name: "x"})) is is_given_on
