"""`gantree topo measure`: what it makes of its words, what it writes and prints; programs are real ones."""

import json
import stat
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from gantree.cli.topo.commands import TopoCommands
from gantree.formats import read_calibration
from gantree.model.errors import BadInput, Unreachable, Unsupported
from gantree.telemetry.nvml import driver as nvml

LAUNCHERS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PMI_RANK",
             "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "GANTREE_NODE", "NCCL_ALGO", "CUDA_VISIBLE_DEVICES")  # fmt: skip
PERF = """#!{python}
import sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
size, n = int(words["-b"]), int(words["-g"])
while size <= int(words["-e"]):
    us = 10 * 2 * (n - 1) + 2 * (n - 1) / n * size / 50_000
    side = f"{{us:.2f}} {{size / us / 1000:.2f}} {{2 * (n - 1) / n * size / us / 1000:.2f}} 0"
    print(f"{{size}} {{size // 4}} float sum -1 {{side}} {{side}}")
    size *= int(words["-f"])
"""
CLUSTER = """\
name: two
tiers: [leaf, node]
machines:
  pair: {gpus: 2, gpu: A6000-48GB, links: [[X, NV4], [NV4, X]]}
nodes:
  - {names: "n[0-1]", machine: pair, at: {leaf: l0}}
"""


def driver_answers() -> bool:
    try:
        return bool(nvml.uuids())
    except Unreachable:
        return False


no_driver = pytest.mark.skipif(
    driver_answers(), reason="the GPUs of this machine would be measured"
)


class Said(NamedTuple):
    """What a command printed."""

    out: str
    err: str


Measure = Callable[..., Said]
Complaints = Callable[[object, str], list[str]]


@pytest.fixture
def measured(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Run the command in this process, as no launcher started it; its errors are raised."""
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)

    def run(*words: object) -> Said:
        capfd.readouterr()
        command = TopoCommands(name="topo").load("measure")
        assert command.main([str(word) for word in words], standalone_mode=False) in (None, 0)
        return Said(*capfd.readouterr())

    return run


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with an all_reduce_perf on links of 10 us and 50 GB/s."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "all_reduce_perf"
    path.write_text(PERF.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture
def words(programs: Path) -> list[object]:
    """Measure two GPUs with the programs."""
    return [
        "--backend",
        "nccl-tests",
        "--binary-dir",
        programs,
        "--gpus",
        2,
        "--collectives",
        "all_reduce",
    ]


@no_driver
def test_a_calibration_is_written_and_told(
    measured: Measure, words: list[object], tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    output = tmp_path / "calibration.yaml"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GANTREE_NODE", "n1")
        said = measured(*words, "--cluster", tmp_path / "c.yaml", "--sizes", "4K-64M", "-o", output)
    calibration = read_calibration(output.read_text(), "c")
    assert list(calibration.links) == ["NV4"]
    assert calibration.links["NV4"].bandwidth_GBps == pytest.approx(50, rel=0.01)
    assert calibration.links["NV4"].latency_us == pytest.approx(10, rel=0.01)
    assert [row.size_bytes for row in calibration.rows] == [4096 * 4**k for k in range(8)]
    assert said.out.splitlines()[1:3] == [
        "WITHIN  BUS BANDWIDTH  LATENCY PER STEP",
        "NV4     50 GB/s        10 us",
    ]
    assert said.out.splitlines()[3] == f"Wrote the calibration to {output}."
    assert "warning" not in said.err


@no_driver
def test_without_an_output_the_file_is_printed(measured: Measure, words: list[object]) -> None:
    said = measured(*words, "--sizes", "4K-64M")
    assert list(read_calibration(said.out, "stdout").links) == ["unknown"]
    assert "they are under 'unknown', which gantree cost does not use" in said.err


@no_driver
def test_json_says_the_same_as_the_file(
    measured: Measure, words: list[object], tmp_path: Path, complaints: Complaints
) -> None:
    output = tmp_path / "calibration.yaml"
    answer = json.loads(measured(*words, "--sizes", "4K-1M", "--json", "-o", output).out)
    calibration = read_calibration(output.read_text(), "c")
    assert answer["measured"] == {
        "backend": "nccl",
        "host": calibration.host,
        "date": calibration.date,
    }
    assert answer["links"]["unknown"]["latency_us"] == calibration.links["unknown"].latency_us
    assert [row["bytes"] for row in answer["rows"]] == [row.size_bytes for row in calibration.rows]
    assert complaints(answer, "topo-measure") == []
    assert any("are unknown" in words for words in answer["warnings"])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--sizes", "1K"], "--sizes 1K: allowed: FROM-TO"),
        (["--sizes", "1K-2K"], "TO at least 4 x FROM"),
        (["--sizes", "0-1K"], "allowed: FROM-TO"),
        (["--sizes", "1M-1K"], "TO at least 4 x FROM"),
        (["--sizes", "1K-9999999G"], "up to 1024G"),
        (["--collectives", "all_reduce,allgather"], "found `allgather`; allowed: all_reduce"),
        (["--collectives", ""], "--collectives: found ``"),
        (["--backend", "mpi"], "--backend mpi: allowed: auto, nccl-tests, nccl, gloo"),
        (["--nodes", "n[0"], "--nodes n[0: allowed: a node name or a hostlist"),
        (["--cluster", "/no/such/file"], "/no/such/file: no such file"),
        (["--backend", "gloo", "--processes", 1], "one process alone has nothing to send to"),
    ],
)
def test_wrong_words_are_refused_before_anything_starts(
    measured: Measure, wrong: list[object], told: str
) -> None:
    with pytest.raises(BadInput) as caught:
        measured("--backend", "gloo", *wrong)
    assert told in str(caught.value)


def test_nodes_that_the_cluster_has_not_are_named(measured: Measure, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    with pytest.raises(BadInput, match="the cluster has no node n2, n3"):
        measured("--cluster", tmp_path / "c.yaml", "--nodes", "n[0-3]")


def test_for_several_nodes_it_says_how_it_is_started(measured: Measure) -> None:
    with pytest.raises(Unsupported) as caught:
        measured("--nodes", "n[0-1]", "-o", "c.yaml")
    assert "one command cannot measure 2 nodes: start the same command once on each node" in str(
        caught.value
    )
    assert "srun --nodes 2" in str(caught.value)


@no_driver
def test_gpus_that_no_driver_tells_of_have_to_be_counted(measured: Measure) -> None:
    with pytest.raises(Unreachable, match="say how many with --gpus"):
        measured("--backend", "nccl")


@no_driver
def test_an_output_that_cannot_be_written_is_an_error(
    measured: Measure, words: list[object], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        measured(*words, "--sizes", "4K-1M", "-o", tmp_path / "no" / "c.yaml")


def test_a_directory_is_refused_as_output_before_anything_is_timed(
    measured: Measure, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="it is a directory; allowed: a file"):
        measured("--backend", "nonsense", "-o", tmp_path)  # the backend would be refused next


@no_driver
def test_a_time_limit_ends_what_hangs(
    measured: Measure, words: list[object], programs: Path
) -> None:
    (programs / "all_reduce_perf").write_text(f"#!{sys.executable}\nimport time; time.sleep(600)\n")
    with pytest.raises(Unreachable, match="did not end in time and was stopped"):
        measured(*words, "--timeout", 1)


@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch (the extra torch)")
def test_without_gpus_processes_of_this_host_are_measured(
    measured: Measure, tmp_path: Path
) -> None:
    output = tmp_path / "calibration.yaml"
    said = measured(
        "--backend", "gloo", "--sizes", "1K-4M", "--collectives", "all_reduce", "-o", output
    )
    calibration = read_calibration(output.read_text(), "c")
    assert (calibration.backend, list(calibration.links)) == ("gloo", ["host"])
    assert said.out.startswith(f"gloo on {calibration.host}, 7 points\n")


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed here")
def test_without_torch_the_way_out_is_told(measured: Measure) -> None:
    with pytest.raises(Unreachable, match=r"needs PyTorch 2\.4 or later"):
        measured("--backend", "gloo")
