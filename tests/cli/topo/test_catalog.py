"""`gantree topo catalog`: models with their MIG places and prices, and what a site's price file changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]


def test_every_model_is_listed_as_documented(gantree: Gantree, complaints: Complaints) -> None:
    told = gantree("topo", "catalog", "--json").json()
    assert complaints(told, "topo-catalog") == []
    assert {"dgx-h100", "gb200-nvl72-tray", "cpu-only"} <= {
        each["name"] for each in told["machines"]
    }
    assert {"P100-16GB", "B300-288GB", "MI355X-288GB"} <= {each["name"] for each in told["gpus"]}


def test_a_gpu_is_told_with_its_machines_mig_places_and_prices(gantree: Gantree) -> None:
    out = gantree("topo", "catalog", "A100-80GB").out
    assert "dgx-a100" in out
    assert "3g.40gb" in out
    assert "0,4" in out  # where a 3g instance may start
    assert "on demand $3.4309/h: aws.amazon.com/ec2/pricing (us-east-1), 2026-11-09" in out


def test_a_machine_is_told_with_its_gpu(gantree: Gantree) -> None:
    told = gantree("topo", "catalog", "dgx-h100", "--json").json()
    assert [each["name"] for each in told["machines"]] == ["dgx-h100"]
    assert [each["name"] for each in told["gpus"]] == ["H100-80GB"]


def test_prices_of_the_site_replace_list_prices(gantree: Gantree, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("gpus: {H100-80GB: {on_demand: 1.25, source: contract 7, date: 2026-10-01}}\n")
    told = gantree("topo", "catalog", "H100-80GB", "--prices", file, "--json").json()
    (gpu,) = told["gpus"]
    assert [(each["market"], each["USD_per_hour"], each["source"]) for each in gpu["prices"]] == [
        ("on_demand", 1.25, "contract 7")
    ]


def test_a_model_that_is_not_known_is_told_with_the_likely_one(gantree: Gantree) -> None:
    done = gantree("topo", "catalog", "H100-80G")
    assert done.code == 2
    assert "no machine or GPU model 'H100-80G'. Did you mean `H100-80GB`?" in done.err


def test_the_beginning_of_a_name_tells_the_models_that_begin_so(gantree: Gantree) -> None:
    done = gantree("topo", "catalog", "h100")
    assert done.code == 2
    assert "Models with this prefix: H100-80GB, H100-94GB, H100-96GB." in done.err.replace(
        "\n", " "
    )


def test_prices_of_the_site_are_marked_however_the_gpu_is_written(
    gantree: Gantree, tmp_path: Path
) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("gpus: {h100-80gb: {on_demand: 1.25, source: contract 7, date: 2026-10-01}}\n")
    done = gantree("topo", "catalog", "H100-80GB", "--prices", file)
    assert (done.code, done.err) == (0, "")
    assert "$1.25/h*" in done.out
    assert "\n* site price" in done.out
    assert "on demand $1.25/h: site price, contract 7, 2026-10-01" in done.out
    assert "*" not in gantree("topo", "catalog", "H100-80GB").out


def test_a_price_of_a_gpu_that_the_catalogue_does_not_know_is_warned_of(
    gantree: Gantree, tmp_path: Path
) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("gpus: {H10-80GB: {spot: 1, source: s, date: 2026-10-01}}\n")
    done = gantree("topo", "catalog", "--prices", file)
    assert done.code == 0
    assert "no GPU model H10-80GB in the catalogue" in done.err
    assert "Did you mean `H100-80GB`?" in done.err.replace("\n", " ")
