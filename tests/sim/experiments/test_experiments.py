"""Experiments: their inputs stay as they were frozen, and each has its texts, its page and its verdicts."""

from hashlib import sha256
from pathlib import Path

import pytest

from gantree.model.errors import NotFound
from gantree.sim.experiments.catalogue import HOME_OF, TEXTS, experiment
from gantree.sim.experiments.experiment import Bench
from gantree.sim.experiments.inputs import INPUTS, MIXES, cluster, drawn_from, mixes, trace
from gantree.sim.experiments.page import markdown
from gantree.sim.experiments.runner import run, write, write_index
from gantree.sim.workload import job_of

PAGES = Path(__file__).resolve().parents[3] / "docs/experiments"

FROZEN = {
    "astra-contention.csv": "67a0c00dd50aa5d8",
    "idleness.csv": "c7c6c64bd7caff8d",
    "gpu-sharing.csv": "5e89c0ca1a44a04e",
    "gpu-sharing-measured.csv": "8c68d899193c8038",
    "fleets.csv": "a788ed6679174749",
    "defragment.csv": "f4f56c0b0362651e",
    "asynchronous.csv": "00b136463881fe96",
    "acting.csv": "9840e3f833fc50f6",
    "clusters/dgx-h100-1056.yaml": "25d00bbe2abd7e02",
    "clusters/dgx-h100-2048.yaml": "5c351adc4bd2b29b",
    "clusters/dgx-h100.yaml": "02c243d9a3161b66",
    "clusters/ethernet-25g.yaml": "016b597c92a28140",
    "clusters/gb200-nvl72.yaml": "2cc898a7fc41dea3",
    "clusters/v100-100g.yaml": "2ae6a716207a59f6",
    "costs.csv": "1cdb2d6e45c66784",
    "lingjun-topo.csv.gz": "564f1b99d4191c75",
    "mixes.yaml": "14ad3c8436b40dce",
    "models.yaml": "d894bad41bff9ad6",
    "muri-trace3.csv.gz": "67c72b65b118cadf",
    "muri/start_overhead_s.csv": "e528681cb0187b25",
    "muri/trace3.csv.gz": "ce97151a9433c442",
    "philly-week.csv.gz": "c15e0e84af174b4b",
    "programs/loss_curve.py": "ccd07edd55e2ad70",
    "reliability.csv": "fe282c485cfaf153",
    "spot-prices.csv": "a0e4202a83efb43f",
}


def test_inputs_are_as_they_were_frozen() -> None:
    found = {
        str(path.relative_to(INPUTS)): sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted(INPUTS.rglob("*"))
        if path.is_file() and path.name != "README.md"
    }
    assert found == FROZEN


@pytest.mark.parametrize("name", HOME_OF)
def test_an_experiment_has_claim_source_and_set_up(name: str) -> None:
    found = experiment(name)
    assert found.title
    assert found.claim
    assert found.source
    assert found.set_up


@pytest.mark.parametrize("name", HOME_OF)
def test_the_page_of_an_experiment_has_its_texts(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    found = experiment(name)
    for text in (found.title, found.claim, found.set_up, *found.notes):
        assert text in page


def test_no_text_is_without_an_experiment() -> None:
    assert sorted(path.stem for path in TEXTS.iterdir()) == sorted(HOME_OF)


def test_an_unknown_experiment_is_told_with_the_nearest_name() -> None:
    with pytest.raises(NotFound, match="overhead"):
        experiment("overhaed")


def test_every_job_of_the_traces_draws_a_model_from_every_mix() -> None:
    for name in ("philly-week", "muri-trace3"):
        for row in trace(name)[::50]:
            for mix in MIXES:
                job = drawn_from(mix, job_of(row), 1)
                assert job.trains is not None or job.traffic is not None
    assert set(mixes()) == {*MIXES}
    assert len(cluster("v100-100g").nodes) == 16


def test_a_page_shows_every_verdict() -> None:
    found = experiment("overhead")
    outcome = found.run(Bench())
    page = markdown(found, outcome)
    for verdict in outcome.verdicts:
        assert f"| {verdict.claim} | {verdict.measured} | **{verdict.judgement}**" in page
    assert page == markdown(found, found.run(Bench()))


def test_the_table_of_experiments_is_replaced_and_the_words_around_it_stay(tmp_path: Path) -> None:
    found = [(experiment("overhead"), experiment("overhead").run(Bench()))]
    page = tmp_path / "README.md"
    page.write_text("# Experiments\n\nWords before.\n", encoding="utf-8")
    write_index(found, tmp_path)
    first = page.read_text(encoding="utf-8")
    assert "Words before.\n\n| experiment |" in first
    assert "| [overhead](overhead.md) | What leaving a node costs | 3 holds, 2 missed |" in first
    page.write_text(f"{first}\nWords after.\n", encoding="utf-8")
    write_index(found, tmp_path)
    assert page.read_text(encoding="utf-8") == f"{first}\nWords after.\n"


def test_processes_change_nothing_in_what_is_written(tmp_path: Path) -> None:
    chosen = experiment("congestion")
    for processes in (1, 2):
        write(chosen, run(chosen, (1,), processes), tmp_path / str(processes))
    one, two = (tmp_path / str(processes) for processes in (1, 2))
    assert sorted(path.name for path in one.iterdir()) == ["congestion.json", "congestion.md"]
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes()
