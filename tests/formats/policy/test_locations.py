"""Where a policy file says what of which queue, for those who find later that it does not suit a site."""

import pytest

from gantree.formats.policy.locations import NOWHERE, places_of

TEXT = """\
preset: gantree
priorities: {urgent: 900}
queues:
  - name: research
    cells: [{leaf: 1}, {node: 2}]
    queues:
      - {name: 007, guarantee: {gpus: 4}}
      - name: nlp
        guarantee:
          gpus:
            H100-80GB: 8
          devices: {fpga: 1}
  - name: product
    cells:
      gpus: 4
"""


@pytest.mark.parametrize(
    ("queue", "keys", "place"),
    [
        ("research", ("cells", "node"), "p.yaml:5: queues[0].cells[1].node"),
        ("research/007", ("guarantee", "gpus", "any"), "p.yaml:7: queues[0].queues[0].guarantee.gpus"),
        ("research/nlp", ("guarantee", "gpus", "H100-80GB"), "p.yaml:11: queues[0].queues[1].guarantee.gpus.H100-80GB"),
        ("research/nlp", ("guarantee", "devices", "fpga"), "p.yaml:12: queues[0].queues[1].guarantee.devices.fpga"),
        ("product", ("cells", "gpus"), "p.yaml:15: queues[1].cells.gpus"),
        ("product", ("limit", "gpus"), "p.yaml:13: queues[1]"),
        ("other", ("cells",), "p.yaml: queue other: cells"),
    ],
)  # fmt: skip
def test_a_field_of_a_queue_is_told_by_line_as_far_as_it_is_written(
    queue: str, keys: tuple[str, ...], place: str
) -> None:
    assert places_of(TEXT, "p.yaml").of_queue(queue, *keys) == place


def test_a_field_of_the_policy_has_a_line_and_a_policy_without_a_file_has_none() -> None:
    assert places_of(TEXT, "p.yaml").of("priorities") == "p.yaml:2: priorities"
    assert places_of("preset: gantree\n", "p.yaml").of("priorities") == "p.yaml:1: priorities"
    assert NOWHERE.of("priorities") == "policy: priorities"
    assert NOWHERE.of_queue("a/b", "cells", "leaf") == "policy: queue a/b: cells.leaf"
