"""What several exporters say of one node is joined: figure by figure where they are figures."""

from collections.abc import Mapping

from gantree.api.gpu_metrics.exporters import answers


def silent() -> Mapping[str, Mapping[int, Mapping[str, float]]]:
    raise OSError("no route to host")


def test_an_exporter_that_says_less_of_a_gpu_takes_nothing_away() -> None:
    asked = {
        "a": lambda: {"n0": {0: {"busy": 0.9, "watts": 300.0}, 1: {"busy": 0.1}}},
        "b": lambda: {"n0": {0: {"busy": 0.5}, 2: {"busy": 0.0}}, "n1": {0: {"busy": 1.0}}},
        "c": silent,
    }
    found, without_answer = answers(asked, ["n0"])
    assert found == {
        "n0": {0: {"busy": 0.5, "watts": 300.0}, 1: {"busy": 0.1}, 2: {"busy": 0.0}},
    }
    assert without_answer == {"c": "no route to host"}
    assert set(answers(asked, None)[0]) == {"n0", "n1"}


def test_of_readings_that_are_no_figures_the_last_counts() -> None:
    asked = {"a": lambda: {"n0": {"p0": 1, "p1": 2}}, "b": lambda: {"n0": {"p1": 3}}}
    assert answers(asked, None)[0] == {"n0": {"p0": 1, "p1": 3}}
