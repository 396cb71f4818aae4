"""Logs of nccl-tests: each collected one gets its verdict; pastes, tears and cuts; nothing is invented.

Excerpts are of public logs: A100 of microsoft/superbenchmark, T4 of an EKS guide of AWS samples, NCCL 1 of the
Windows port's page, timestamps and torn rows as src/util.cu of NVIDIA/nccl-tests prints them.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.logs.nccl_tests import NcclRun, NcclTest, parse
from support.examples import examples

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "topology" / "nccl-tests"

VERDICTS = {
    "a100-8gpu-1node-allgather-superbench": ("all_gather", 8, 8, 1, 34, (8589934592, 33646, 223.39)),
    "a100-8gpu-1node-allreduce-superbench": ("all_reduce", 8, 8, 1, 34, (8589934592, 63896, 235.26)),
    "a100-8gpu-1node-alltoall-superbench": ("all_to_all", 8, 8, 1, 34, (8589934592, 33508, 224.31)),
    "a100-8gpu-1node-broadcast-superbench": ("broadcast", 8, None, 1, 34, (8589934592, 36896, 232.81)),
    "a100-8gpu-1node-reduce-superbench": ("reduce", 8, None, 1, 34, (8589934592, 37613, 228.38)),
    "a100-8gpu-1node-reducescatter-superbench": ("reduce_scatter", 8, 8, 1, 34, (8589934592, 32464, 231.52)),
    "a3-mega-2node-allgather-gcp": ("all_gather", 16, 16, None, 31, (8589934592, 42668.7, 188.73)),
    "gb200-allreduce-2-racks-coreweave": ("all_reduce", 144, 128, None, 6, (17179869184, 42067, 810.41)),
    "gb200-allreduce-20-racks-coreweave": ("all_reduce", 1440, None, None, 6, (17179869184, 84625, 405.74)),
    "gb200-allreduce-single-rack-coreweave": ("all_reduce", 72, 72, None, 5, (8589934592, 20299, 834.57)),
    "gcp-2node-16gpu-allgather-flexstart": ("all_gather", 16, 16, None, 24, (8589934592, 24489, 328.85)),
    "h100-2node-16gpu-allreduce-oci": ("all_reduce", 16, 16, 2, 5, (17179869184, 68359, 471.22)),
    "h100-64gpu-8node-allreduce-sharp-coreweave": ("all_reduce", 96, 96, None, 5, (8589934592, 43980, 386.56)),
}  # fmt: skip
"""collective, ranks, ranks by the rows, nodes, number of rows, (bytes, us, busbw) of the last.

The two CoreWeave logs that contradict their names: busbw / algbw of the one called 64 GPUs is 2 x 95/96, and of the
one that names rank 143 it is 2 x 127/128.
"""

HEADER = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROWS = """\
     1048576        262144     float     sum      -1    74.86   14.01   24.51      0    75.10   13.96   24.43      0
   536870912     134217728     float     sum      -1   4062.1  132.17  231.29      0   4071.0  131.88  230.79      0
"""
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 127.755 \n#\n"
RANKS = "".join(
    f"#  Rank {rank:2} Group  0 Pid 1942267 on n{rank // 4} device {rank % 4:2} [0x0f] NVIDIA H100 80GB HBM3\n"
    for rank in range(8)
)
LOG = (
    "# nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808\n"
    "# Collective test starting: all_reduce_perf\n"
    "# nThread 1 nGpus 4 minBytes 1048576 maxBytes 536870912 step: 512(factor) warmup iters: 1 iters: 20\n"
    f"#\n# Using devices\n{RANKS}#\n{HEADER}{ROWS}{FOOT}# Collective test concluded: all_reduce_perf\n"
)
OLD = """\
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0   float     sum    35.20    0.00    0.00    N/A    34.05    0.00    0.00    N/A
hostname:3442:3442 [0] NCCL INFO Launch mode Parallel
  4294967296    1073741824   float     sum    32194  133.41  233.47  5e-07    32089  133.85  234.23  5e-07
  8589934592    2147483648   float     sum    63896  134.43  235.26    N/A    63814  134.61  235.57    N/A
"""
NCCL_1 = """\
# Using devices
#                                                 out-of-place                    in-place
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
    10000000      10000000    char     sum    1.628   6.14   9.21    0e+00    1.932   5.18   7.77    0e+00
"""


def only(text: str, source: str = "f", collective: str | None = None) -> NcclRun:
    (run,) = parse(text, source, collective).runs
    return run


def figures(test: NcclTest) -> list[tuple[int, float, float]]:
    return [(row.size_bytes, row.time_us, row.busbw_GBps) for run in test.runs for row in run.rows]


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_each_collected_log_gets_its_verdict(name: str) -> None:
    path = SHARED / f"{name}.txt"
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose logs carry no licence")
    test = parse(path.read_text(), path.name)
    (run,) = test.runs
    last = run.rows[-1]
    found = (last.size_bytes, last.time_us, last.busbw_GBps)
    assert (
        run.collective,
        run.ranks,
        run.ranks_by_rows,
        run.nodes,
        len(run.rows),
        found,
    ) == VERDICTS[name]
    assert all(row.in_place for row in run.rows)
    both = [x.busbw_GBps for row in run.rows for x in (row.out_of_place, row.in_place) if x]
    assert sum(both) / len(both) == pytest.approx(run.avg_busbw_GBps, rel=2e-3, abs=0.02)
    assert [words for words in test.warnings if "whole" in words] == []


def test_a_log_whose_rows_belie_its_ranks_says_so() -> None:
    path = SHARED / "gb200-allreduce-2-racks-coreweave.txt"
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose logs carry no licence")
    assert "144 ranks are named, but its rows are of 128" in "\n".join(
        parse(path.read_text(), "f").warnings
    )


def test_a_whole_log_tells_everything() -> None:
    test = parse(LOG, "f")
    (run,) = test.runs
    assert (run.collective, run.ranks, run.ranks_by_rows, run.nodes) == ("all_reduce", 8, 8, 2)
    assert (run.library, run.version, run.avg_busbw_GBps, run.out_of_bounds) == (
        "nccl",
        "2.28.8",
        127.755,
        0,
    )
    device = run.devices[5]
    assert (device.rank, device.host, device.device, device.bus) == (5, "n1", 1, "0x0f")
    assert device.model == "NVIDIA H100 80GB HBM3"
    row = run.rows[1]
    assert (row.size_bytes, row.count, row.dtype, row.redop, row.root) == (
        536870912,
        134217728,
        "float",
        "sum",
        -1,
    )
    assert (row.time_us, row.algbw_GBps, row.busbw_GBps, row.out_of_place.wrong) == (
        4062.1,
        132.17,
        231.29,
        0,
    )
    assert row.in_place is not None
    assert (row.in_place.time_us, row.in_place.busbw_GBps) == (4071.0, 230.79)
    assert (test.inferred, test.warnings) == ((), ())
    json.dumps(test.as_json())


def prefixed(text: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


TORN = "     1048576        262144     float     sum      -1"
TAIL = "    74.86   14.01   24.51      0    75.10   13.96   24.43      0"


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        "\ufeff" + LOG,
        LOG.replace("\n", "\r\n"),
        prefixed(LOG, "[1,0]<stdout>:"),
        prefixed(LOG, "0: "),
        prefixed(LOG, "    "),
        prefixed(LOG, "2024-11-05T08:12:13.123Z "),
        prefixed(LOG, "worker-0 | "),
        LOG.replace(ROWS, "n0:1:22 [0] NCCL INFO Launch mode Parallel\n" + ROWS),
        LOG.replace("      0\n", "      0  2024-05-06 12:13:14\n"),
        LOG.replace(f"{TORN}{TAIL}", f"{TORN}n0:1:22 [0] NCCL INFO 24 coll channels\nn0:1 x\n{TAIL}"),
        LOG.replace(f"{TORN}{TAIL}", f"{TORN}\nn0:1:22 [0] NCCL INFO 24 coll channels\n{TAIL}"),
        LOG.replace(f"{TORN}{TAIL}", f"{TORN}{TAIL[:32]}\nn0:1:22 [0] NCCL INFO more\n{TAIL[32:]}"),
        LOG.replace("     1048576 ", "\x1b[0m     1048576 "),
        "$ mpirun -np 2 ./build/all_reduce_perf -b 1M -e 512M -f 512 -g 4\n" + LOG,
    ],
    ids=["plain", "bom", "crlf", "mpi", "srun", "indent", "kubectl", "compose", "info", "timestamps",
         "torn-and-glued", "torn", "torn-in-the-middle", "ansi", "command"],
)  # fmt: skip
def test_the_same_table_is_read_however_it_was_printed(text: str) -> None:
    test = parse(text, "f")
    assert test.warnings == ()
    assert test.runs[0].ranks == 8
    assert len(test.runs[0].rows) == 2
    assert figures(test) == [(1048576, 74.86, 24.51), (536870912, 4062.1, 231.29)]
    assert [row.in_place.busbw_GBps for row in test.runs[0].rows if row.in_place] == [24.43, 230.79]


def test_old_prints_have_deviations_and_no_count_of_wrong_values() -> None:
    test = parse(OLD, "a100-allreduce.txt")
    (run,) = test.runs
    assert (run.collective, run.ranks, run.ranks_by_rows) == ("all_reduce", 8, 8)
    assert [row.out_of_place.wrong for row in run.rows] == [None, None, None]
    assert [row.root for row in run.rows] == [None, None, None]
    assert any("8 ranks, from busbw" in words for words in test.inferred)


def test_the_tests_of_nccl_1_print_milliseconds() -> None:
    test = parse(NCCL_1, "f")
    (row,) = test.runs[0].rows
    assert (row.time_us, row.busbw_GBps) == (1628.0, 9.21)
    assert (test.runs[0].collective, test.runs[0].ranks) == ("all_reduce", 4)
    assert any("times in ms" in words for words in test.inferred)


BROADCAST = """\
#       size         count    type    root     time   algbw   busbw  error     time   algbw   busbw  error
  1073741824     268435456   float       3   4723.1  227.34  227.34    N/A   4720.0  227.49  227.49    N/A
"""
ALLTOALL = """\
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
  8589934592     268435456   float            33508  256.36  224.31    N/A    33234  258.47  226.16    N/A
"""


def test_columns_that_old_prints_leave_out_do_not_shift_the_others() -> None:
    (broadcast,) = only(BROADCAST, "broadcast.txt").rows
    assert (broadcast.redop, broadcast.root, broadcast.time_us) == (None, 3, 4723.1)
    (all_to_all,) = only(ALLTOALL, "alltoall.log").rows
    assert (all_to_all.redop, all_to_all.root, all_to_all.time_us) == (None, None, 33508.0)


@pytest.mark.parametrize(
    ("text", "collective", "source", "found", "told"),
    [
        (ROWS, None, "f", "all_reduce", "from the columns of its rows"),
        (ROWS.replace("sum      -1", "sum       0").replace(" 24.51", " 14.01").replace("231.29", "132.17")
         .replace(" 24.43", " 13.96").replace("230.79", "131.88"), None, "f", "reduce", "from the columns"),
        (ALLTOALL, None, "f", None, "nothing tells which collective"),
        (ALLTOALL, "all_to_all", "f", "all_to_all", ""),
        (ALLTOALL, None, "logs/8x-all-to-all.txt", "all_to_all", "from the file's name"),
        (OLD, None, "h100_all-reduce_8.txt", "all_reduce", "from the file's name"),
        ("$ ./build/alltoall_perf -g 8\n" + ALLTOALL, None, "all_gather.txt", "all_to_all", ""),
        ("$ alltoall_perf; all_gather_perf\n" + ALLTOALL, None, "f", None, "nothing tells"),
        ("$ ./all_gather_perf\n" + ROWS, None, "f", "all_gather", "named all_gather, but its rows are of all_reduce"),
    ],
)  # fmt: skip
def test_what_was_measured_is_told_by_the_best_witness(
    text: str, collective: str | None, source: str, found: str | None, told: str
) -> None:
    test = parse(text, source, collective)
    assert test.runs[0].collective == found
    assert told in "\n".join((*test.inferred, *test.warnings))


def test_several_tests_in_one_log_stay_apart() -> None:
    second = LOG.replace("all_reduce_perf", "all_gather_perf").replace("-1 ", "-1 ")
    gather = """\
  8589934592     134217728     float    none      -1    24489  350.77  328.85      0    23991  358.05  335.67      0
"""
    text = LOG + "$ next\n" + second.replace(ROWS, gather).replace(RANKS, RANKS.replace("n0", "m0"))
    runs = parse(text, "f").runs
    assert [(run.collective, run.ranks, run.nodes, len(run.rows)) for run in runs] == [
        ("all_reduce", 8, 2, 2),
        ("all_gather", 8, 2, 1),
    ]
    assert runs[1].devices[0].host == "m0"
    assert runs[1].ranks_by_rows == 16


def test_commands_before_each_table_name_it() -> None:
    text = f"$ ./all_gather_perf\n{ALLTOALL}{FOOT}$ ./alltoall_perf\n{ALLTOALL}{FOOT}{ALLTOALL}"
    assert [run.collective for run in parse(text, "f").runs] == ["all_gather", "all_to_all", None]


def test_a_table_printed_again_is_of_the_same_ranks() -> None:
    runs = parse(LOG + HEADER + ROWS, "f").runs
    assert [(run.collective, run.ranks, run.nodes) for run in runs] == [("all_reduce", 8, 2)] * 2


def test_groups_of_ranks_are_counted_alone() -> None:
    halves = "".join(
        line.replace("Group  0", f"Group  {int(line[8:10]) // 4}") + "\n"
        for line in RANKS.splitlines()
    )
    test = parse(LOG.replace(RANKS, halves), "f")
    assert (test.runs[0].ranks, test.runs[0].nodes) == (4, 1)
    assert "split into groups" in "\n".join(test.warnings)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("values : 0 OK", "values : 0 FAILED", "out of bounds values: 0 FAILED"),
        ("values : 0 OK", "values : 3 FAILED", "out of bounds values: 3 FAILED"),
        ("231.29      0", "231.29     17", "17 wrong values"),
        ("230.79      0", "230.79  2e+09", "2000000000 wrong values"),
        ("time   algbw", "cputime   algbw", "CPU times"),
        (FOOT, "n0: Test NCCL failure common.cu:958 'unhandled cuda error'\n", "Test NCCL failure"),
        ("  230.79      0\n", "\n", "no whole in-place half"),
        ("4062.1  132.17  231.29      0   4071.0  131.88  230.79      0", "4062.1", "line 19: the row is not whole"),
        ("    74.86   14.01   24.51", "     XXXX   XX.XX   XX.XX", "line 18: the row is not whole"),
        (RANKS, RANKS.splitlines()[7] + "\n", "7 of 8 ranks are not named"),
        (RANKS, RANKS + RANKS.splitlines()[7].replace("Rank  7", "Rank 15") + "\n", "7 of 16 ranks are not named"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_told(old: str, new: str, told: str) -> None:
    assert old in LOG
    assert told in "\n".join(parse(LOG.replace(old, new), "f").warnings)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("4062.1", "406.21", "f:19: algbw: found 132.17 GB/s for 536870912 bytes in 406.21"),
        ("132.17", "13.217", "f:19: algbw: found 13.217 GB/s"),
        ("231.29", "312.29", "f:19: busbw: found 312.29 GB/s where algbw is 132.17; allowed: at most twice"),
        ("4062.1", "0.00", "f:19: algbw"),
        ("4062.1  132.17  231.29", "4062.1", "f:19: algbw: found 0 GB/s"),
    ],
)  # fmt: skip
def test_rows_that_contradict_themselves_are_refused_with_their_lines(
    old: str, new: str, told: str
) -> None:
    with pytest.raises(BadFields) as caught:
        parse(LOG.replace(old, new), "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "give what all_reduce_perf"),
        ("hello 1 2 float", "no row of an nccl-tests table"),
        ("bash: all_reduce_perf: command not found", "not found"),
        ("# nThread 1 nGpus 8 minBytes 8\n", "ended before its first row"),
        ("# nThread 1 nGpus 8 minBytes 8\nn0: Test CUDA failure common.cu:1 'no device'\n", "Test CUDA failure"),
        ('{"config": {"nthreads": 1}}', "JSON of -J"),
        ("USAGE: all_reduce_perf [-t,--nthreads <num>] [-b,--minbytes <size>]", "its help"),
        (HEADER + "".join("# " + line for line in ROWS.splitlines(keepends=True)), "no row"),
    ],
)  # fmt: skip
def test_what_holds_no_table_is_named(text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "f")
    assert told in str(caught.value)


def test_figures_of_no_number_of_ranks_tell_none() -> None:
    run = only("1000000 250000 float sum -1 1000.0 1.00 2.02 0 1000.0 1.00 2.02 0\n")
    assert (run.collective, run.ranks, run.ranks_by_rows) == ("all_reduce", None, None)


def test_a_collective_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="'allreduce' is no collective"):
        parse(LOG, "f", "allreduce")


SAMPLES = (LOG, OLD, NCCL_1, BROADCAST, ALLTOALL, prefixed(LOG, "[1,0]<stdout>:"), LOG + OLD)
WORDS = st.sampled_from(
    [*"\n\n\n", "0", "8", "1048576", "999999999999999999", "float", "sum", "none", "-1", "N/A", "nan", "inf",
     "1e99", "9e-99", "0.00", "35.20", "5e-07", "#", "# size count type redop root time #wrong", "# bytes N type ",
     "# Rank 0 on h device 0 [0x0] X", "# Rank 9999999 Group 9999999 Pid 1 on h device 0 [0x0] X",
     "# nThread 9999 nGpus 9999 x", "# Out of bounds values : 9 FAILED", "# Avg bus bandwidth : 1", "all_gather_perf",
     "nccl-library=22808", "# Collective test starting: x_perf", "Test NCCL failure", "[1,0]<stdout>:"]
)  # fmt: skip


@settings(max_examples=examples(150))
@given(st.one_of(st.text(), st.lists(WORDS, max_size=80).map(" ".join)))
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    try:
        test = parse(text, "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error)
    else:
        json.dumps(test.as_json())


@settings(max_examples=examples(150))
@given(st.sampled_from(SAMPLES), st.data())
def test_a_damaged_log_is_read_or_refused(text: str, data: st.DataObject) -> None:
    lines = text.splitlines(keepends=True)
    at, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    lines[at], lines[other] = lines[other], lines[at]
    damaged = "".join(lines)
    start = data.draw(st.integers(0, len(damaged)))
    end = data.draw(st.integers(start, min(len(damaged), start + 200)))
    damaged = damaged[:start] + data.draw(st.text(max_size=5)) + damaged[end:]
    try:
        test = parse(damaged, "fuzz")
    except GantreeError:
        return
    assert all(run.rows for run in test.runs)
    json.dumps(test.as_json())


@settings(max_examples=examples(150))
@given(st.sampled_from(SAMPLES), st.data())
def test_a_log_cut_at_its_end_invents_no_figure(text: str, data: st.DataObject) -> None:
    whole = figures(parse(text, "f"))
    try:
        found = figures(parse(text[: data.draw(st.integers(0, len(text)))], "f"))
    except GantreeError:
        return
    assert found == whole[: len(found)]


@pytest.mark.parametrize(
    "text",
    ["1 " * 1_000_000, "8 2 float sum -1\n" * 60_000, "# Rank 1 on h device 0 [0x0] X\n" * 40_000,
     " " * 2_000_000 + "8", "8" * 2_000_000, LOG * 500],
    ids=["digits", "torn", "ranks", "blanks", "number", "many"],
)  # fmt: skip
def test_large_texts_are_read_or_refused(text: str) -> None:
    try:
        assert len(parse(text, "f").runs) == 500
    except BadInput as error:
        assert "f" in str(error)
