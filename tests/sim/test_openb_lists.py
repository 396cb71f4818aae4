"""Reading the openb lists: what they say, and what is told of those that say it wrongly. Lists here are made up."""

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadInput, GantreeError, NotFound
from gantree.sim.openb.lists import (
    PodShape,
    Workload,
    read_nodes,
    read_pods,
    read_ranks,
    read_workload,
)
from support.examples import examples

NODES = """sn,cpu_milli,memory_mib,gpu,model
b,8000,100,2,T4
a,16000,200,0,
c,8000,100,4,A10
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
p0,4000,10,1,500,,LS
p1,4000,10,1,1000,T4|A10,LS
p2,4000,10,0,0,T4,BE
p3,8000,10,2,1000,,LS
p4,4000,10,1,500,,BE
"""
ORDER = "seed,pos,pod\n7,1,p3\n7,0,p4\n8,0,p1\n7,2,p3\n"
RANKS = "seed,sn,rank\n7,a,2\n7,b,0\n7,c,1\n8,a,0\n"

SHARE = PodShape(4000, 10, 1, 500)
PAIR = PodShape(8000, 10, 2, 1000)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory with the four lists."""
    for name, text in (("nodes", NODES), ("pods", PODS), ("order", ORDER), ("ranks", RANKS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_nodes_are_arrays_and_models_numbers_in_the_order_of_their_names(written: Path) -> None:
    nodes = read_nodes(written / "nodes")
    assert nodes.names == ("b", "a", "c")
    assert nodes.models == ("", "A10", "T4")
    assert nodes.model.tolist() == [2, 0, 1]
    assert nodes.gpus.tolist() == [2, 0, 4]
    assert nodes.gpu_milli == 6000


def test_pods_are_shapes_and_those_without_gpus_have_no_model(written: Path) -> None:
    assert read_pods(written / "pods") == {
        "p0": SHARE,
        "p1": PodShape(4000, 10, 1, 1000, ("A10", "T4")),
        "p2": PodShape(4000, 10, 0, 0),
        "p3": PAIR,
        "p4": SHARE,
    }


def test_arrivals_come_by_position_and_may_recur(written: Path) -> None:
    workload = read_workload(written / "pods", written / "order", 7)
    assert [workload.shapes[index] for index in workload.arrivals] == [SHARE, PAIR, PAIR]
    assert dict(zip(workload.shapes, workload.pods_of_shape, strict=True))[SHARE] == 2


def test_a_gzipped_list_reads_as_the_plain_one(written: Path) -> None:
    packed = written / "order.gz"
    packed.write_bytes(gzip.compress(ORDER.encode()))
    plain: Workload = read_workload(written / "pods", written / "order", 7)
    assert read_workload(written / "pods", packed, 7) == plain


def test_ranks_are_by_node(written: Path) -> None:
    assert read_ranks(written / "ranks", 7, read_nodes(written / "nodes")).tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sn,cpu_milli\n", "no column memory_mib"),
        ("", "no column sn"),
        (NODES.replace("16000", "-1"), ":3: cpu_milli: found -1"),
        (NODES.replace("b,8000", "b,8e3"), ":2: cpu_milli: found 8e3"),
        (NODES.replace("c,8000,100,4", "c,8000,100,65"), ":4: gpu: found 65"),
        (NODES.replace("c,", "b,"), "found b 2 times"),
        (NODES + 'd,"8', "unexpected end of data"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n", "no node has a GPU"),
    ],
)
def test_wrong_nodes_are_told_with_their_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        read_nodes(path)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("2,1000", "2,500"), ":5: gpu_milli: found 500"),
        (("1,500", "1,1001"), ":2: gpu_milli: found 1001"),
        (("1,500", "1,0"), ":2: gpu_milli: found 0"),
        (("p1,", "p0,"), "found p0 2 times"),
    ],
)
def test_wrong_pods_are_told(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(PODS.replace(*change))
    with pytest.raises(BadInput) as error:
        read_pods(path)
    assert told in str(error.value)


def test_a_seed_that_is_not_there_is_told_with_those_that_are(written: Path) -> None:
    with pytest.raises(NotFound, match="nothing for seed 9; there is 7, 8"):
        read_workload(written / "pods", written / "order", 9)


def test_a_pod_or_a_node_that_is_not_there_is_told(written: Path) -> None:
    (written / "order").write_text(ORDER.replace("p4", "p9"))
    with pytest.raises(BadInput, match=r"order:3: pod p9 is not in"):
        read_workload(written / "pods", written / "order", 7)
    with pytest.raises(BadInput, match="no rank for node b and 1 other, seed 8"):
        read_ranks(written / "ranks", 8, read_nodes(written / "nodes"))


def test_files_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for raw, told in (
        (b"\xff\xfe", "not UTF-8"),
        (gzip.compress(b"sn")[:-4], "damaged gzip"),
        (b"\x1f\x8b\x08garbage", "damaged gzip"),
        (gzip.compress(b"sn")[:10] + b"\xff" * 20, "damaged gzip"),
    ):
        path.write_bytes(raw)
        with pytest.raises(BadInput, match=told):
            read_nodes(path)
    with pytest.raises(BadInput, match="no such file"):
        read_nodes(tmp_path / "none")


@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.data())
def test_whatever_the_text_nothing_but_errors_of_ours_is_raised(
    tmp_path: Path, data: st.DataObject
) -> None:
    for name, text in (("nodes", NODES), ("pods", PODS), ("order", ORDER), ("ranks", RANKS)):
        (tmp_path / name).write_bytes(data.draw(mangled(text)))
    for read in (
        lambda: read_nodes(tmp_path / "nodes"),
        lambda: read_workload(tmp_path / "pods", tmp_path / "order", 7),
        lambda: read_ranks(tmp_path / "ranks", 7, read_nodes(tmp_path / "nodes")),
    ):
        try:
            read()
        except GantreeError as error:
            assert str(error)


@st.composite
def mangled(draw: st.DrawFn, text: str) -> bytes:
    """The text as it is, cut, with a piece replaced by anything, with lines swapped, or gzipped and cut."""
    raw = text.encode()
    at = draw(st.integers(0, len(raw)))
    match draw(st.integers(0, 4)):
        case 0:
            return raw
        case 1:
            return raw[:at]
        case 2:
            return raw[:at] + draw(st.binary(max_size=6)) + raw[at + draw(st.integers(0, 5)) :]
        case 3:
            lines = raw.splitlines(keepends=True)
            return b"".join(draw(st.permutations(lines)))
        case _:
            return gzip.compress(raw)[: -draw(st.integers(1, 20))]
