"""`gantree topo import`: sources of several kinds become one machine, or one cluster file on which jobs are placed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantree.formats import read_cluster
from gantree.topology.discovery.kinds import FABRIC_KINDS, KINDS, MACHINE_KINDS

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "topology"
MATRIX = """\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tPIX\tSYS\t0-15\t0\tN/A
GPU1\tNV4\t X \tSYS\tPIX\t16-31\t1\tN/A
NIC0\tPIX\tSYS\t X \tSYS
NIC1\tSYS\tPIX\tSYS\t X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
PEERS = """ \tGPU0\tGPU1
 GPU0\tX\tGNS
 GPU1\tGNS\tX

Legend:
  X    = Self
  OK   = Status Ok
  GNS  = GPU not supported
"""
TREE = "SwitchName=s0 Switches=l[0-1]\nSwitchName=l0 Nodes=n[0-1]\nSwitchName=l1 Nodes=n[2-3]\n"
JOB = "name: j\ngang:\n  - {role: w, members: 2, each: {gpus: 2}}\ntopology: {required: leaf}\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        "m.txt": MATRIX,
        "p2p.txt": PEERS,
        "topology.conf": TREE,
        "j.yaml": JOB,
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_fabric_and_a_machine_make_a_cluster_file_on_which_jobs_are_placed(
    gantree: Gantree, files: Path
) -> None:
    done = gantree(
        "topo", "import", "slurm", "topology.conf", "nvidia-smi", "m.txt", "-o", "site.yaml"
    )
    assert done.code == 0
    assert [line.partition(" machine m ")[0] for line in done.err.splitlines()] == [
        "gantree: warning: the GPU model of",
        "gantree: warning: CPUs and memory of",
    ]
    assert "leaf   2        2           s0/l0" in done.out
    assert done.out.endswith("Wrote the cluster file to site.yaml.\n")
    site = read_cluster(Path("site.yaml").read_text(), "site.yaml")
    assert (site.name, site.tiers, len(site.nodes)) == ("site", ("spine", "leaf", "node"), 4)
    assert site.machines["m"].links[0][1] == "NV4"
    placed = gantree("place", "site.yaml", "j.yaml", "--json").json()["placements"][0]
    assert [member["node"] for member in placed["members"]] == ["n0", "n1"]
    assert placed["domain"] == {"tier": "leaf", "name": "s0/l0"}


def test_sources_of_one_machine_are_put_together(gantree: Gantree, files: Path) -> None:
    told = gantree(
        "topo", "import", "nvidia-smi", "m.txt", "nvidia-smi-p2p", "p2p.txt", "--json"
    ).json()
    assert told["links"] == [["X", "NV4"], ["NV4", "X"]]
    assert told["peer"] == [[True, False], [False, True]]


def test_machines_can_be_of_the_catalogue_and_of_some_nodes_only(
    gantree: Gantree, files: Path
) -> None:
    words = ["slurm", "topology.conf", "nvidia-smi", "n[0-1]=m.txt", "--machine", "n[2-3]=dgx-h100"]
    done = gantree("topo", "import", *words, "-o", "c.yaml", "--name", "mixed", "--json")
    assert done.code == 0
    machine_of_node = done.json()["machine_of_node"]
    assert machine_of_node == {"n0": "m", "n1": "m", "n2": "dgx-h100", "n3": "dgx-h100"}
    assert read_cluster(Path("c.yaml").read_text(), "c.yaml").name == "mixed"


def test_several_machines_without_a_fabric_are_told_one_by_one(
    gantree: Gantree, files: Path
) -> None:
    Path("other.txt").write_text(MATRIX.replace("NV4", "NV2"))
    words = ("topo", "import", "nvidia-smi", "n0=m.txt", "n1=other.txt")
    assert set(gantree(*words, "--json").json()["machines"]) == {"m.txt", "other.txt"}
    assert gantree(*words, "-o", "machines.yaml").code == 0
    text = "name: c\ntiers: [node]\nnodes: [{names: a, machine: m}, {names: b, machine: other}]\n"
    site = read_cluster(text + Path("machines.yaml").read_text(), "c.yaml")
    assert [site.machines[name].links[0][1] for name in ("m", "other")] == ["NV4", "NV2"]


def test_nodes_that_are_no_compute_nodes_can_be_left_out(gantree: Gantree, files: Path) -> None:
    words = ("topo", "import", "slurm", "topology.conf", "--leave-out", "n1,n[2-3]", "--json")
    assert [node["name"] for node in gantree(*words).json()["nodes"]] == ["n0"]


def test_a_second_fabric_source_refines_the_first(gantree: Gantree, files: Path) -> None:
    Path("racks.csv").write_text("node,zone\nn0,z\nn1,z\nn2,z\nn3,z\n")
    told = gantree("topo", "import", "slurm", "topology.conf", "csv", "racks.csv", "--json").json()
    assert told["tiers"] == ["spine", "leaf"]  # the zone is what the one spine is already
    assert any("its zone is the spine of the tree" in said for said in told["inferred"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["slrum", "topology.conf"], "no kind of source 'slrum'; allowed: nvidia-smi, "),
        (["slrum", "topology.conf"], "Did you mean `slurm`?"),
        (["slurm"], "no file after slurm"),
        (["slurm", "none.conf"], "none.conf: no such file or directory"),
        (["slurm", "-", "nvidia-smi", "-"], "standard input (-) can be read only once"),
        (["slurm", "n0=topology.conf"], "a slurm file names its nodes"),
        (["nvidia-smi", "m.txt", "--leave-out", "n0"], "--leave-out needs a fabric"),
        (["slurm", "topology.conf", "-o", "c.yaml"], "nothing tells what machine 4 nodes are"),
        (["slurm", "topology.conf", "--machine", "dgx-h10"], "did you mean dgx-h100"),
        (["slurm", "topology.conf", "--leave-out", "n["], "--leave-out: `n[` is no hostlist; allowed: a node name"),
        (["slurm", "topology.conf", "--leave-out", "x"], "topology.conf: has no node x to leave out"),
        (["slurm", "topology.conf", "nvidia-smi", "m.txt", "--machine", "dgx-h100"], "two machines for all"),
        (["nvml", "m.txt"], "nvml reads the driver of this machine and takes no file; found m.txt"),
        (["nvidia-smi", "n[=m.txt"], "n[=m.txt: `n[` is no hostlist; allowed: a node name"),
        (["ibnet", "x"], "slurmd, ibnetdiscover, "),
        (["ibnet", "x"], "nvml. Did you mean `ibnetdiscover`?"),
        (["slurm", "topology.conf", "--level", "k"], "--level needs a kubernetes source"),
        (["slurm", "topology.conf", "--topology", "t"], "--topology needs a slurm-yaml source"),
        (["slurm", "none.conf", "--name", "a b"], "--name 'a b': allowed: letters, digits"),
        (["slurm", "topology.conf", "--gpu", "H100"], "Did you mean H100-80GB or H100-94GB or H100-96GB?"),
        (["slurm", "topology.conf", "--gpu", "H10-80GB"], "--gpu H10-80GB: no GPU model of the catalogue; Did"),
        (["slurm", "m.txt"], "m.txt: it looks like `nvidia-smi topo -m`; import it as nvidia-smi\n"),
        (["csv", "m.txt"], "m.txt: it looks like `nvidia-smi topo -m`; import it as nvidia-smi\n"),
        (["csv", "topology.conf"], "topology.conf: it looks like Slurm's topology.conf; import it as slurm\n"),
        (["nccl-xml", "topology.conf"], "topology.conf: it looks like Slurm's topology.conf; import it as slurm\n"),
    ],
)  # fmt: skip
def test_bad_words_are_refused_with_the_way_out(
    gantree: Gantree, files: Path, words: list[str], message: str
) -> None:
    done = gantree("topo", "import", *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not Path("c.yaml").exists()


def test_a_file_that_is_called_like_nodes_and_a_file_is_read_as_it_is_called(
    gantree: Gantree, files: Path
) -> None:
    Path("n0=x.txt").write_text(MATRIX)
    assert gantree("topo", "import", "nvidia-smi", "n0=x.txt", "--json").json()["gpus"] == 2


def test_this_machine_is_read_through_its_driver_or_that_there_is_none_is_told(
    gantree: Gantree, files: Path
) -> None:
    done = gantree("topo", "import", "nvml", "--json")
    if done.code == 0:
        assert done.json()["gpus"] > 0
    else:
        assert (done.code, done.out) == (1, "")
        assert "driver" in done.err


def test_answers_are_as_documented(gantree: Gantree, complaints: Complaints, files: Path) -> None:
    fabric = gantree("topo", "import", "slurm", "topology.conf", "nvidia-smi", "m.txt", "--json")
    assert complaints(fabric.json(), "topo-import-fabric") == []
    machine = gantree(
        "topo", "import", "nvidia-smi", "m.txt", "nvidia-smi-p2p", "p2p.txt", "--json"
    )
    assert complaints(machine.json(), "topo-import") == []


def test_help_tells_every_kind(gantree: Gantree) -> None:
    told = gantree("topo", "import", "--help").out
    assert [kind for kind in (*KINDS, "nvml") if f"{kind}: " not in told] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["", "hello\n", "{}", "[]", "<a/>", "\x00\x01", "a,b\n1,2\n", "null"]
)
def test_no_kind_takes_a_text_that_is_none_of_its_own(
    gantree: Gantree, files: Path, kind: str, text: str
) -> None:
    Path("strange.txt").write_text(text)
    done = gantree("topo", "import", kind, "strange.txt")
    assert (done.code, done.out) == (2, "")
    assert "strange.txt" in done.err


@pytest.mark.skipif(not SHARED.exists(), reason="needs the shared samples")
def test_a_subnet_managers_dump_and_a_matrix_make_a_cluster_on_which_jobs_are_placed(
    gantree: Gantree, files: Path
) -> None:
    dump = SHARED / "ibnetdiscover" / "topograph-example.txt"
    matrix = SHARED / "nvidia-smi-topo" / "h100-8gpu-8nic-mlx5.txt"
    done = gantree("topo", "import", "ibnetdiscover", dump, "nvidia-smi", matrix, "-o", "c.yaml")
    assert done.code == 0
    (machine,) = read_cluster(Path("c.yaml").read_text(), "c.yaml").machines.values()
    assert [nic.rail for nic in machine.nics] == [0, 1, None, None, 2, 3, None, None]
    assert (
        "(b08-p1-dgx-08-c01, ubuntu, B11-P1-CUFM-02)" in done.err
    )  # a swapped cable, two managers
    job = JOB.replace("members: 2, each: {gpus: 2}", "members: 8, each: {gpus: 8, nics: 8}")
    Path("big.yaml").write_text(job)
    answer = json.loads(gantree("place", "c.yaml", "big.yaml", "--json").out)["placements"][0]
    assert answer["domain"]["tier"] == "leaf"
    assert len({member["node"] for member in answer["members"]}) == 8


def test_kinds_of_machines_and_fabrics_have_different_names() -> None:
    assert not MACHINE_KINDS.keys() & FABRIC_KINDS.keys()


OTHER_KINDS = {
    "ibnetdiscover": 'vendid=0x2c9\nSwitch\t1 "S-0002c90000000001"\t# "leaf" enhanced port 0 lid 1 lmc 0\n',
    "slurm-yaml": "- topology: t\n  cluster_default: true\n  flat: true\n" * 40,
    "kubernetes": "apiVersion: v1\nkind: List\nitems: []\n" + "# x\n" * 70,
    "nvidia-smi-xml": "<?xml version='1.0'?>\n<nvidia_smi_log>\n" + "<a>1</a>\n" * 70,
    "nvidia-smi-p2p": PEERS,
    "topograph": "switches:\n  s: {switches: [a]}\n" + "# x\n" * 70,
    "lingjun": "ip,DSW,PSW,ASW\n" + "h,d,p,a\n" * 70,
}


@pytest.mark.parametrize("given", ["slurm", "csv", "slurm-yaml", "ibnetdiscover"])
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_text_of_another_kind_is_refused_in_one_line_that_names_that_kind(
    gantree: Gantree, files: Path, given: str, kind: str
) -> None:
    if given == kind:
        return
    Path("t").write_text(OTHER_KINDS[kind])
    done = gantree("topo", "import", given, "t")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("gantree: t: it looks like ")
    assert done.err.endswith(f"; import it as {kind}\n")


def test_a_text_of_no_kind_is_refused_by_slurm_in_one_line(gantree: Gantree, files: Path) -> None:
    Path("t").write_text("some: text\n" * 64)
    done = gantree("topo", "import", "slurm", "t")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "t:1: line: found `some: text`" in done.err


@pytest.mark.parametrize("kind", FABRIC_KINDS)
def test_an_empty_text_is_called_empty(gantree: Gantree, files: Path, kind: str) -> None:
    Path("t").write_text(" \n")
    assert "t: the text is empty" in gantree("topo", "import", kind, "t").err


def test_a_cluster_file_is_not_replaced_by_machines(gantree: Gantree, files: Path) -> None:
    words = ("topo", "import", "nvidia-smi", "m.txt", "-o", "c.yaml")
    assert gantree("topo", "import", "slurm", "topology.conf", *words[2:]).code == 0
    before = Path("c.yaml").read_text()
    done = gantree(*words)
    assert (done.code, done.out) == (2, "")
    assert "c.yaml: it holds a cluster" in done.err
    assert Path("c.yaml").read_text() == before
    assert gantree(*words[:-1], "m.yaml").code == 0
    assert gantree(*words[:-1], "m.yaml").code == 0  # machines may be written again


def test_gpus_can_be_named_where_a_print_does_not_tell_them(gantree: Gantree, files: Path) -> None:
    words = ("topo", "import", "nvidia-smi", "m.txt", "-o", "m.yaml")
    assert "the GPU model of machine m is not told" in gantree(*words).err
    done = gantree(*words, "--gpu", "h100-80gb")
    assert "GPU model" not in done.err
    assert "gpu: H100-80GB" in Path("m.yaml").read_text()


@pytest.mark.parametrize("word", ["localhost", "ubuntu"])
def test_hosts_that_nobody_named_are_warned_of(gantree: Gantree, files: Path, word: str) -> None:
    Path("t.conf").write_text(f"SwitchName=s Nodes=n0,{word}\n")
    done = gantree("topo", "import", "slurm", "t.conf")
    assert f"warning: {word}: a name that hosts have by default" in done.err
    assert f"--leave-out {word}" in done.err
    assert gantree("topo", "import", "slurm", "t.conf", "--leave-out", word).err == ""


def test_links_are_called_what_they_are_and_nics_by_their_devices(
    gantree: Gantree, files: Path
) -> None:
    assert "mlx5_1" in gantree("topo", "import", "nvidia-smi", "m.txt").out
    assert "NVLink islands: 0,1" in gantree("topo", "import", "nvidia-smi", "m.txt").out
    sample = SHARED / "rocm"
    if sample.exists():
        told = [gantree("topo", "import", "rocm-smi", file).out for file in sample.iterdir()]
        assert any("xGMI islands: " in each for each in told)
        assert not any("NVLink islands" in each for each in told)
