"""The file of repair hooks: what is read, and errors that name file, line and field."""

import pytest

from gantree.formats.repair_hooks import read_repair_hooks
from gantree.model.errors import BadFields
from gantree.model.repairs import RepairChain, RepairStep

GOOD = """
repairs:
  - sign: XID (79|119)
    steps:
      - {name: reset, run: [/opt/reset, "{node}", "{gpu}"], timeout: 5m, retries: 1}
      - {name: burn-in, run: [/opt/burn-in], repeatable: true}
  - sign: .*
    steps: [{name: ticket, run: [/opt/ticket, "{sign}"], timeout: 30s}]
"""


def test_signs_and_steps_are_read_in_their_order() -> None:
    assert read_repair_hooks(GOOD, "repair.yaml") == (
        RepairChain(
            "XID (79|119)",
            (
                RepairStep("reset", ("/opt/reset", "{node}", "{gpu}"), 300.0, retries=1),
                RepairStep("burn-in", ("/opt/burn-in",), 600.0, repeatable=True),
            ),
        ),
        RepairChain(".*", (RepairStep("ticket", ("/opt/ticket", "{sign}"), 30.0),)),
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("XID (79|119)", "XID (79", "repair.yaml:3: repairs[0].sign: found `XID (79`"),
        ('"{gpu}"', '"{gpus}"', "repairs[0].steps[0].run: found `{gpus}`; allowed: {node}, {gpu}"),
        ("timeout: 5m", "timeout: soon", "repairs[0].steps[0].timeout: found `soon`"),
        ("retries: 1", "retry: 1", "repairs[0].steps[0].retry"),
        ("run: [/opt/burn-in], ", "", "repairs[0].steps[1]"),
    ],
)
def test_an_error_names_its_place_and_the_way_out(old: str, new: str, says: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_repair_hooks(GOOD.replace(old, new), "repair.yaml")
    assert says in str(caught.value)
