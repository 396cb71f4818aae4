"""`gantree bench openb`: the experiment out of four lists, made up here."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,96000,1000,4,G2\nb,96000,1000,4,G2\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
    "share,1000,1,1,500\nwhole,1000,1,1,1000\nfour,1000,1,4,1000\n"
)
ARRIVALS = ("share", "share", *["whole"] * 3, "four", *["share"] * 5)
"""8 GPUs: 4 taken by the shares and the singles, 4 by the one pod of four; 2.5 more are asked for, in vain."""


@pytest.fixture
def lists(tmp_path: Path) -> list[object]:
    """Options that name the four lists; one of them is gzipped."""
    order = "seed,pos,pod\n" + "".join(f"5,{at},{pod}\n" for at, pod in enumerate(ARRIVALS))
    texts = {
        "nodes": NODES,
        "pods": PODS,
        "order": order,
        "tiebreak": "seed,sn,rank\n5,a,1\n5,b,0\n",
    }
    options: list[object] = []
    for name, text in texts.items():
        path = tmp_path / f"{name}.csv"
        path.write_bytes(gzip.compress(text.encode()) if name == "order" else text.encode())
        options += [f"--{name}", path]
    return options


@pytest.mark.parametrize("policy", ["Random", "BestFit", "FGD", "gantree"])
def test_every_policy_answers_by_the_schema(
    gantree: Gantree, complaints: Complaints, lists: list[object], policy: str
) -> None:
    outcome = gantree("bench", "openb", *lists, "--seed", 5, "--policy", policy.lower(), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    figures = outcome.json()
    assert complaints(figures, "bench-openb") == []
    assert (figures["policy"], figures["seed"], figures["pods"]) == (policy, 5, len(ARRIVALS))
    if policy != "Random":
        assert figures["allocated_percent"] == dict.fromkeys(
            ("100", "110", "120", "130"), 100.0
        ) | {"90": 100.0}
        assert figures["multi_gpu_percent"]["130"] == 100.0
        assert figures["dropped"] == 5
        assert figures["all_placed_until_percent"] == 100.0
        assert figures["bound"] == {"percent": 100.0, "places_first_percent": 96}


def test_people_get_a_table_and_the_bound(gantree: Gantree, lists: list[object]) -> None:
    outcome = gantree("bench", "openb", *lists, "--seed", 5)
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0].startswith("gantree, seed 5: 11 pods, 5 dropped, ")
    assert lines[1].split("  ")[0] == "ARRIVED"
    assert lines[6].split() == ["130", "%", "100.00", "%", "100.00", "%"]
    assert lines[7:] == [
        "every pod with a GPU was placed until 100.00 % had arrived",
        "bound: 100.00 % for policies that place all of the first 96 %",
    ]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--policy", "FDG"], "no policy FDG; there are Random, BestFit, FGD, gantree"),
        (["--seed", 6], "nothing for seed 6; there is 5"),
        (["--nodes", "none.csv"], "none.csv: no such file"),
    ],
)
def test_what_is_not_there_is_bad_input(
    gantree: Gantree, lists: list[object], more: list[object], told: str
) -> None:
    outcome = gantree("bench", "openb", *lists, "--seed", 5, *more)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err


def test_its_options_are_in_the_docs(gantree: Gantree) -> None:
    page = (Path(__file__).parents[3] / "docs" / "packing.md").read_text()
    outcome = gantree("bench", "openb", "--help")
    assert outcome.code == 0
    for option in ("--nodes", "--pods", "--order", "--tiebreak", "--seed", "--policy", "--json"):
        assert option in outcome.out
        assert option in page
