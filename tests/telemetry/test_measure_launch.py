"""What launchers tell, and what a command makes of its node."""

import pytest

from gantree.model.errors import BadInput, GantreeError, Unsupported
from gantree.telemetry.measuring.here import Gpus, Share, share_of
from gantree.telemetry.measuring.launch import Launch, launch_of
from gantree.telemetry.measuring.measure import chosen_backend, visible_gpus
from gantree.topology.hardware.catalog import machine


@pytest.mark.parametrize(
    ("env", "launch"),
    [
        ("", None),
        ("RANK=0 WORLD_SIZE=1", None),
        ("SLURM_PROCID=0 SLURM_NTASKS=4", None),
        ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=n0", Launch(1, 2, "n0", 29500, "here")),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=7000 GANTREE_NODE=n4", Launch(0, 2, "n0", 7000, "n4")),
        ("SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=2 MASTER_ADDR=n0 SLURMD_NODENAME=n1",
         Launch(3, 4, "n0", 29500, "n1", 1, 2)),
        ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 MASTER_ADDR=n0", Launch(1, 2, "n0", 29500, "here")),
        ("RANK=9 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=8 MASTER_ADDR=n0 MASTER_PORT=1",
         Launch(9, 16, "n0", 1, "here", 1, 8)),
    ],
)  # fmt: skip
def test_a_launcher_is_understood(env: str, launch: Launch | None) -> None:
    assert launch_of(dict(word.split("=") for word in env.split()), "here") == launch


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ("RANK=0 WORLD_SIZE=2", "MASTER_ADDR is not set; start the same command once on each node"),
        ("RANK=x WORLD_SIZE=2", "RANK is 'x'"),
        ("RANK=2 WORLD_SIZE=2 MASTER_ADDR=n0", "RANK is 2 but WORLD_SIZE is 2"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=70000", "MASTER_PORT is 70000"),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=-1", "MASTER_PORT is '-1'"),
        ("RANK=0 WORLD_SIZE=\u0663 MASTER_ADDR=n0", "allowed: a whole number"),
    ],
)
def test_what_a_launcher_cannot_mean_is_refused(env: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        launch_of(dict(word.split("=") for word in env.split()), "here")
    assert told in str(caught.value)


IDS = ("GPU-aa11", "GPU-ab22", "GPU-cc33")


@pytest.mark.parametrize(
    ("told", "gpus"),
    [
        (None, (0, 1, 2)),
        ("", ()),
        ("2,0", (2, 0)),
        ("GPU-cc33, 1", (2, 1)),
        ("GPU-ab", (1,)),
        ("GPU-a,0", ()),
        ("1,1", (1,)),
        ("0,7,1", (0,)),
        ("-1", ()),
    ],
)
def test_only_gpus_that_cuda_shows_are_used(told: str | None, gpus: tuple[int, ...]) -> None:
    env = {} if told is None else {"CUDA_VISIBLE_DEVICES": told}
    assert visible_gpus(IDS, env) == gpus


@pytest.mark.parametrize(
    ("wish", "gpus", "launched", "chosen"),
    [
        ("auto", 0, False, "gloo"),
        ("auto", 8, False, "nccl"),
        ("auto", 8, True, "nccl"),
        ("gloo", 8, False, "gloo"),
        ("nccl", 1, True, "nccl"),
        ("nccl-tests", 2, False, "nccl-tests"),
        ("nccl-tests", 0, False, "--backend nccl-tests needs GPUs"),
        ("nccl-tests", 8, True, "nccl-tests needs MPI there"),
        ("mpi", 8, False, "allowed: auto, nccl-tests, nccl, gloo"),
    ],
)
def test_a_backend_is_chosen_by_what_there_is(
    wish: str, gpus: int, launched: bool, chosen: str, tmp_path: object
) -> None:
    try:
        assert chosen_backend(wish, gpus, launched, tmp_path) == chosen  # type: ignore[arg-type] # pytest gives a Path
    except GantreeError as error:
        assert chosen in str(error)


EIGHT = Gpus(8, tuple(f"GPU-{i}" for i in range(8)), machine("dgx-h100").links)
ALONE = Launch(0, 2, "n0", 1, "n0")
EACH = Launch(9, 16, "n0", 1, "n1", 1, 8)


def brief(share: Share) -> tuple[int, list[str], int]:
    return (
        share.processes,
        [f"{each.within}x{len(each.ranks)}" for each in share.in_node],
        len(share.gpu_uuids),
    )


@pytest.mark.parametrize(
    ("kind", "gpus", "processes", "launch", "share"),
    [
        ("nccl", EIGHT, None, None, (8, ["NV18x2", "NV18x8"], 8)),
        ("nccl", EIGHT, None, ALONE, (8, ["NV18x2", "NV18x8"], 8)),
        ("nccl", EIGHT, None, EACH, (1, ["NV18x2", "NV18x8"], 1)),
        ("nccl", Gpus(1, ("GPU-1",), ()), None, EACH, (1, ["unknownx2", "unknownx8"], 1)),
        ("nccl", Gpus(1, ("GPU-1",), ()), None, ALONE, (1, [], 1)),
        ("gloo", Gpus(0), None, None, (2, ["hostx2"], 0)),
        ("gloo", Gpus(0), 4, None, (4, ["hostx2", "hostx4"], 0)),
        ("gloo", EIGHT, None, ALONE, (1, [], 0)),
        ("gloo", Gpus(0), None, EACH, (1, ["hostx2", "hostx8"], 0)),
    ],
)  # fmt: skip
def test_a_command_takes_its_share_of_its_node(
    kind: str,
    gpus: Gpus,
    processes: int | None,
    launch: Launch | None,
    share: tuple[int, list[str], int],
) -> None:
    assert brief(share_of(kind, gpus, processes, launch)) == share


def test_of_several_commands_on_a_node_each_takes_its_own_gpu() -> None:
    assert share_of("nccl", EIGHT, None, EACH).gpu_uuids == ("GPU-1",)


@pytest.mark.parametrize(
    ("kind", "gpus", "processes", "error"),
    [("nccl", Gpus(1, ("GPU-1",)), None, Unsupported), ("gloo", Gpus(0), 1, BadInput)],
)
def test_what_has_nobody_to_send_to_is_refused_with_the_way_out(
    kind: str, gpus: Gpus, processes: int | None, error: type[GantreeError]
) -> None:
    with pytest.raises(error, match="start the same command once on each node"):
        share_of(kind, gpus, processes, None)
