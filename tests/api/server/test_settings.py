"""What a daemon is told at its start."""

from pathlib import Path

import pytest

from gantree.api.server.settings import Settings
from gantree.formats.prices.reader import PricesFile
from gantree.policy.rules import Policy, QueueRule

PRICES = """
gpus: {H100-80GB: {on_demand: 2, source: x, date: 2026-10-01}}
storage: {USD_per_GiB_month: 0.1, GiB: {research: 10, resaerch/nlp: 20, prod: 1}}
"""


@pytest.mark.parametrize(
    ("queues", "warned"),
    [
        (("research", "research/nlp", "prod"), ["resaerch/nlp"]),
        (("research", "resaerch/nlp", "prod"), []),
        ((), []),
    ],
)
def test_storage_of_a_queue_that_the_policy_does_not_have_is_warned_of(
    tmp_path: Path, queues: tuple[str, ...], warned: list[str]
) -> None:
    policy = Policy(queues=tuple(QueueRule(queue) for queue in queues))
    prices = PricesFile.read(PRICES, "prices.yaml")
    told = list(Settings(tmp_path, None, policy=policy, prices=prices).warnings())
    assert [line.split("`")[1] for line in told] == warned
    for line in told:
        assert line.startswith("prices.yaml: storage.GiB: the policy has no queue")
        assert line.endswith("Did you mean `research/nlp`?")
    assert list(Settings(tmp_path, None, policy=policy).warnings()) == []
