"""Rates of NICs as node_exporter tells them."""

from pathlib import Path

import pytest

from gantree.model.errors import BadInput
from gantree.telemetry.infiniband import PortReading, ports_in

SAMPLE = (
    Path(__file__).parents[3] / "shared/data/topology/node-exporter/infiniband-e2e-fixture.prom"
)
RATE, STATE, PHYSICAL = (
    "node_infiniband_rate_bytes_per_second",
    "node_infiniband_state_id",
    "node_infiniband_physical_state_id",
)


def metrics(device: str, rate: float, state: int = 4, physical: int = 5, labels: str = "") -> str:
    inside = f'device="{device}",port="1"{labels}'
    return f"{RATE}{{{inside}}} {rate}\n{STATE}{{{inside}}} {state}\n{PHYSICAL}{{{inside}}} {physical}\n"


def test_a_port_has_its_negotiated_rate_and_is_up_or_not() -> None:
    text = metrics("mlx5_0", 5e10) + metrics("mlx5_1", 2.5e10) + metrics("mlx5_2", 5e10, state=1)
    assert ports_in(text) == {
        "": {
            "mlx5_0": PortReading(50.0, True),
            "mlx5_1": PortReading(25.0, True),
            "mlx5_2": PortReading(50.0, False),
        }
    }


def test_a_port_has_the_bytes_that_it_sent() -> None:
    sent = 'node_infiniband_port_data_transmitted_bytes_total{device="mlx5_0",port="1"} 9e9\n'
    assert ports_in(metrics("mlx5_0", 5e10) + sent) == {
        "": {"mlx5_0": PortReading(50.0, True, sent_bytes=9e9)}
    }


def test_a_device_of_two_ports_counts_as_its_best() -> None:
    text = "".join(
        f'{name}{{device="m",port="{port}"}} {value}\n'
        for port, rate, state in ((1, 5e9, 4), (2, 1e10, 1))
        for name, value in ((RATE, rate), (STATE, state))
    )
    assert ports_in(text) == {"": {"m": PortReading(5.0, True)}}


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        (',instance="n3:9100"', "n3"),
        (',instance="n3:9100",node="n4"', "n4"),
        (',instance="[fe80::1]:9100"', "[fe80::1]"),
        (',instance="n3"', "n3"),
        ("", ""),
    ],
)
def test_the_node_is_told_by_labels_where_one_server_has_many(labels: str, node: str) -> None:
    assert list(ports_in(metrics("mlx5_0", 5e10, labels=labels))) == [node]


@pytest.mark.parametrize(
    "text",
    ["", "up 1\n", f'{RATE}{{port="1"}} 5e9\n', f'{RATE}{{device="m",port="1"}} NaN\n',
     f'{RATE}{{device="m",port="1"}} -1\n', f'{STATE}{{device="m",port="1"}} 4\n'],
)  # fmt: skip
def test_what_tells_no_rate_says_nothing(text: str) -> None:
    assert ports_in(text) == {}


@pytest.mark.parametrize("text", [f'{RATE}{{device="m",port="1"', f'{RATE}{{device="m"}} x\n'])
def test_half_written_text_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="no metrics in Prometheus"):
        ports_in(text)


@pytest.mark.skipif(not SAMPLE.exists(), reason="needs ../shared/data/topology")
def test_the_exporters_own_sample_is_read() -> None:
    errors = {
        "node_infiniband_link_downed_total": 0,
        "node_infiniband_port_errors_received_total": 0,
    }
    assert ports_in(SAMPLE.read_text()) == {
        "": {
            "i40iw0": PortReading(1.25, True),
            "mlx4_0": PortReading(5.0, True, errors, 14933760.0),
        }
    }


def test_the_text_of_an_exporter_that_runs_is_read() -> None:
    """Written by node_exporter 1.5 on a made /sys with two devices, one of them at half of its lanes."""
    text = (Path(__file__).parents[1] / "data/exporters/node_exporter-1.5.prom").read_text()
    found = ports_in(text)[""]
    assert {name: (port.rate_GBps, port.up) for name, port in found.items()} == {
        "mlx5_0": (50.0, True),
        "mlx5_1": (25.0, True),
    }
    assert found["mlx5_0"].counters == {
        "node_infiniband_link_downed_total": 2.0,
        "node_infiniband_symbol_error_total": 3.0,
        "node_infiniband_port_errors_received_total": 7.0,
    }
