"""What programs of a check are told: no code of the job, one plan for all members, nothing where there is no link."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from gantree.executors.local.checking.files import check_in
from gantree.executors.local.checking.plan import CheckLauncher, no_prices
from gantree.executors.local.launch.visible_gpus import gpu_indices
from gantree.executors.local.run_directory import RunDirectory, order_from_json, order_to_json
from gantree.model.jobs import Check
from gantree.model.orders import MemberLaunch, StartGang
from gantree.testing.builders import cluster

SITE = cluster(leaves=1, nodes=2)
ENV = (("LD_PRELOAD", "/evil.so"), ("PYTHONPATH", "/evil"), ("NCCL_SOCKET_IFNAME", "eth7"))
BASE = {"PATH": "/usr/bin", "HOME": "/root"}


def order(members: int, gpus: tuple[int, ...] = (0, 1), **check: Any) -> StartGang:
    launches = tuple(
        MemberLaunch("w", n, f"n{n}", n, 2 * n, 2, gpus, ("mlx5_0",), ("true",), ENV)
        for n in range(members)
    )
    return StartGang(
        id="j/1/start", job="j", attempt=1, world_size=2 * members, members=launches,
        check=Check(60.0, **check),
    )  # fmt: skip


def uuids(_node: str, gpus: tuple[int, ...]) -> str:
    return ",".join(f"GPU-{gpu}" for gpu in gpus)


def made(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "runs", "j", 1)
    run.make(range(2))
    return run


def test_the_job_has_a_say_in_addresses_alone(tmp_path: Path) -> None:
    asked, launcher = order(2), CheckLauncher(SITE, uuids, no_prices)
    record = launcher.record(made(tmp_path), asked, asked.members[0], BASE, ())
    assert record is not None
    env = record["instead"]["env"]
    assert {name for name, _ in ENV} & env.keys() == {"NCCL_SOCKET_IFNAME"}
    assert (env["CUDA_VISIBLE_DEVICES"], env["NCCL_IB_HCA"]) == ("GPU-0,GPU-1", "=mlx5_0")
    assert record["instead"]["as"] is None


def test_members_of_two_daemons_have_one_plan(tmp_path: Path) -> None:
    asked, run = order(2), made(tmp_path)
    prices = iter((100.0, 200.0))
    for member in asked.members:
        launcher = CheckLauncher(SITE, uuids, lambda _: {"gang": next(prices)})
        launcher.record(run, asked, member, BASE, ())
    specs = [(run.check / f"spec-{n}.json").read_text() for n in (0, 1)]
    assert specs[0].replace('"index": 0', '"index": 1') == specs[1]
    status = check_in(run)
    assert status is not None
    assert (status.state, status.seconds) == ("checking", 60.0)


def test_prices_hold_for_real_gpus_alone(tmp_path: Path) -> None:
    asked, run = order(2), made(tmp_path)
    priced = CheckLauncher(SITE, gpu_indices, lambda _: {"gang": 100.0})
    priced.record(run, asked, asked.members[0], BASE, ())
    text = (run.check / "plan.json").read_text()
    assert '"cuda": false' in text
    assert '"expected": {}' in text


def test_one_process_has_no_check_but_a_burn_in(tmp_path: Path) -> None:
    run, virtual = made(tmp_path), CheckLauncher(SITE, gpu_indices, no_prices)
    alone, real = order(1), CheckLauncher(SITE, uuids, no_prices)
    assert virtual.record(run, alone, alone.members[0], BASE, ()) is None
    assert check_in(run) is None
    assert real.record(run, order(1, (0,)), order(1, (0,)).members[0], BASE, ()) is None
    assert real.record(run, alone, alone.members[0], BASE, ()) is not None
    soaked = order(1, (0,), soak_s=5.0)
    assert real.record(run, soaked, soaked.members[0], BASE, ()) is not None


def test_an_order_keeps_its_check_on_disk_and_old_orders_have_none() -> None:
    asked = replace(order(1, required=True), check_replaces=False)
    data = order_to_json(asked)
    assert order_from_json(data) == asked
    for name in ("check", "check_replaces"):
        del data[name]
    assert order_from_json(data).check is None
