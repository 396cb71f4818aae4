"""`gantree trace`: descriptions, imports, parts, load and synthetic traces, as a user calls them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.traces.importing import ALL_FORMATS
from gantree.formats import read_trace
from gantree.journal.sqlite import SqliteJournal

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
DATA = Path(__file__).parents[2] / "data/traces"
ROWS = ["a,0,100,2,4,x", "b,3600,50,1,4,x/y", "c,7200,50,3,0,z", "d,90000,50,1,1,z"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    header = "job_id,submit_s,duration_s,members,gpus_per_member,queue"
    path.write_text("\n".join([header, *ROWS]) + "\n")
    return path


def rows(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:]


def test_a_trace_is_described_for_people_and_for_programs(
    gantree: Gantree, complaints: Complaints, trace: Path
) -> None:
    told = gantree("trace", "describe", trace, "--json")
    assert complaints(told.json(), "trace-describe") == []
    assert (told.json()["jobs"], told.json()["sizes"][-1]["gpus"]) == (4, "5-8")
    text = gantree("trace", "describe", trace).out
    assert "jobs            4\n" in text
    assert "5-8" in text
    assert text.index("x ") < text.index("z ")


def test_a_public_trace_is_imported_and_says_what_is_left_out(
    gantree: Gantree, complaints: Complaints, tmp_path: Path
) -> None:
    out = tmp_path / "t.csv"
    done = gantree("trace", "import", DATA / "helios.csv", "-o", out, "--json")
    assert complaints(done.json(), "trace-import") == []
    assert (done.json()["format"], done.json()["jobs"]) == ("helios", 3)
    assert done.json()["left_out"] == {"never started": 1}
    assert done.err == "gantree: warning: 1 row left out: 1 never started\n"
    assert [job.queue for job in read_trace(out)] == ["vcJkd", "vchbv", "vcpDC"]


def test_a_part_of_a_trace_keeps_its_rows(
    gantree: Gantree, complaints: Complaints, trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "part.csv"

    def part(*words: str) -> list[str]:
        done = gantree("trace", "slice", trace, "-o", out, *words, "--json")
        assert (done.code, complaints(done.json(), "trace-slice")) == (0, [])
        assert done.json()["jobs"] == len(rows(out))
        return rows(out)

    assert part("--from", "1h", "--to", "1d") == ROWS[1:3]
    assert part("--queue", "x") == ROWS[:2]
    assert part("--gpus", "4-8") == ROWS[:2]
    assert part("--gpus", "4") == [ROWS[1]]
    assert part("--queue", "x/y", "--queue", "z", "--first", "2") == ROWS[1:3]
    assert part("--gpus", "-1", "--from", "1d") == [ROWS[3]]


def test_load_is_scaled(
    gantree: Gantree, complaints: Complaints, trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "busy.csv"
    words = ("--arrivals", "2", "--durations", "1.5", "--json")
    done = gantree("trace", "scale", trace, "-o", out, *words)
    assert complaints(done.json(), "trace-scale") == []
    assert rows(out)[1] == "b,1800,75,1,4,x/y"


def test_a_trace_and_its_workload_file_give_the_same_synthetic_trace(
    gantree: Gantree, complaints: Complaints, trace: Path, tmp_path: Path
) -> None:
    workload = tmp_path / "workload.yaml"
    assert gantree("trace", "describe", trace, "--workload", workload).code == 0
    outs = [tmp_path / f"{number}.csv" for number in range(3)]
    for source, out, seed in zip((trace, workload, trace), outs, ("7", "7", "8"), strict=True):
        words = ("--jobs", "50", "--span", "2d", "--seed", seed, "--json")
        done = gantree("trace", "synthesize", source, "-o", out, *words)
        assert complaints(done.json(), "trace-synthesize") == []
    one, two, other = (out.read_bytes() for out in outs)
    assert one == two != other
    assert len(rows(outs[0])) == 50


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("scale", "TRACE", "-o", "OUT"), "say --arrivals FACTOR"),
        (("scale", "TRACE", "-o", "OUT", "--arrivals", "0"), "--arrivals: found 0"),
        (("slice", "TRACE", "-o", "OUT", "--gpus", "8-1"), "--gpus: found '8-1'"),
        (("slice", "TRACE", "-o", "OUT", "--gpus", "-"), "--gpus: found '-'"),
        (("slice", "TRACE", "-o", "OUT", "--from", "soon"), "--from: found 'soon'"),
        (("describe", "TRACE", "--format", "helios"), "vc: found no such column"),
        (("describe", "TRACE", "--format", "helois"), "Did you mean `helios`?"),
        (("describe", "NONE"), "cannot be read"),
        (("import", "TRACE", "-o", "NONE/t.csv"), "cannot be written"),
        (("import", "NONE", "-o", "OUT"), "cannot be read"),
        (("import", "NONE", "-o", "OUT", "--format", "kubernetes"), "cannot be read"),
        (("import", "NONE", "-o", "OUT", "--format", "journal"), "no such file or directory"),
        (("import", "TRACE", "-o", "NONE.txt"), ".csv, .csv.gz, .parquet"),
    ],
)
def test_bad_input_is_named(
    gantree: Gantree, trace: Path, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    places = {"TRACE": str(trace), "OUT": str(tmp_path / "o.csv"), "NONE": str(tmp_path / "none")}
    filled = [
        word.replace("NONE", places["NONE"]) if "NONE" in word else places.get(word, word)
        for word in words
    ]
    done = gantree("trace", *filled)
    assert done.code == 2
    assert sentence in done.err


def test_the_page_names_every_format() -> None:
    page = (Path(__file__).parents[3] / "docs" / "traces.md").read_text()
    assert [name for name in ALL_FORMATS if name != "gantree" and f"`{name}`" not in page] == []


def test_a_list_of_pods_and_a_journal_are_known_by_their_content(
    gantree: Gantree, tmp_path: Path
) -> None:
    pods, state, out = tmp_path / "pods.json", tmp_path / "state", tmp_path / "t.csv"
    pods.write_text('{"items": []}')
    done = gantree("trace", "import", pods, "-o", out, "--json")
    assert (done.code, done.json()["format"], done.json()["jobs"]) == (0, "kubernetes", 0)
    state.mkdir()
    SqliteJournal(state).close()
    done = gantree("trace", "import", state, "-o", out)
    assert done.code == 2
    assert "the journal is empty" in done.err
