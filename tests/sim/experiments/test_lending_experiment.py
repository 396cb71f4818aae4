"""The load of the experiment about lending: a curve of replicas with gaps, and a backlog that fills the site."""

from gantree.sim.experiments.sharing.lending import (
    DAY_S,
    NIGHT_NODES,
    NIGHTS,
    NODE_GPUS,
    REPLICAS_DAY,
    SHARE_RULES,
    SHARING,
    lenders,
    serving_rows,
    share_rows,
    training_rows,
)


def test_serving_never_needs_more_than_it_is_guaranteed_and_less_by_night() -> None:
    rows = serving_rows(1)
    guaranteed = NODE_GPUS * NIGHT_NODES / 2
    for hour in range(NIGHTS * 24):
        at = hour * 3600.0
        gpus = sum(8 for row in rows if row.submit_s <= at < row.submit_s + row.duration_s)
        assert gpus <= guaranteed == REPLICAS_DAY * NODE_GPUS
        if hour % 24 == 0 and hour:
            assert gpus <= guaranteed / 2


def test_training_has_work_for_the_whole_site_all_the_time() -> None:
    gpu_s = sum(row.duration_s * row.members * row.gpus_per_member for row in training_rows(2))
    assert gpu_s >= NIGHTS * DAY_S * NODE_GPUS * NIGHT_NODES


def test_rules_differ_in_what_they_are_about() -> None:
    rules = lenders()
    assert {rule.guarantee["gpus"] for rule in rules.values()} == {64.0}
    assert [rule.lend_idle is not None for rule in rules.values()] == [False] * 3 + [True] * 3
    assert SHARE_RULES["held"].idle == 1.0
    assert {row.queue for row in share_rows(1)} == {*SHARING, "urgent"}
