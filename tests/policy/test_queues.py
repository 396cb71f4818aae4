"""The tree of queues: numbers, names, cohorts, users, and queues that nobody told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.rules import QueueRule

RESEARCH = (
    QueueRule("research", weight=2),
    QueueRule("research/nlp"),
    QueueRule("research/vision", weight=3),
    QueueRule("serving"),
)


def test_queues_stand_under_their_parents_and_the_root() -> None:
    tree = QueueTree(RESEARCH)
    nlp = tree.leaf("research/nlp")
    assert [tree.label(node) for node in tree.path(nlp)] == [
        "queue research/nlp",
        "queue research",
        "the cluster",
    ]
    assert tree.parent[ROOT] == -1
    assert tree.weight[tree.leaf("research/vision")] == 3
    assert tree.rule[nlp] is RESEARCH[1]
    assert [tree.name[node] for node in tree.under(tree.leaf("research"))] == [
        "research",
        "research/nlp",
        "research/vision",
    ]


def test_queues_of_one_cohort_stand_under_its_node_with_their_weights_summed() -> None:
    tree = QueueTree(
        (QueueRule("a", 2, cohort="x"), QueueRule("b", 3, cohort="x"), QueueRule("c", 4))
    )
    a, b, c = tree.leaf("a"), tree.leaf("b"), tree.leaf("c")
    cohort = tree.parent[a]
    assert tree.parent[b] == cohort and tree.is_cohort(cohort)
    assert tree.weight[cohort] == 5 and tree.label(cohort) == "cohort x"
    assert tree.parent[c] == ROOT and not tree.is_cohort(c) and not tree.is_cohort(ROOT)


def test_cohorts_of_one_name_under_different_parents_are_different() -> None:
    tree = QueueTree(
        (QueueRule("a"), QueueRule("b"), QueueRule("a/q", cohort="x"), QueueRule("b/q", cohort="x"))
    )
    assert tree.parent[tree.leaf("a/q")] != tree.parent[tree.leaf("b/q")]


def test_users_have_nodes_of_their_own_where_they_share_their_queue() -> None:
    tree = QueueTree(RESEARCH, share_users=True)
    ann, bob = tree.leaf("serving", "ann"), tree.leaf("serving", "bob")
    assert ann != bob and tree.leaf("serving", "ann") == ann
    assert tree.parent[ann] == tree.queue_node("serving")
    assert (tree.user[ann], tree.queue[ann], tree.weight[ann]) == ("ann", "serving", 1.0)
    assert tree.label(ann) == "ann in serving"
    assert tree.shared_path(ann) == (ann, tree.parent[ann])


def test_users_have_nodes_where_a_rule_limits_them_but_compete_only_if_they_share() -> None:
    tree = QueueTree((QueueRule("a", user_limit={"gpus": 8}), QueueRule("b")))
    ann = tree.leaf("a", "ann")
    assert tree.user[ann] == "ann" and tree.limiting_rule(ann) is tree.rule[tree.parent[ann]]
    assert tree.shared_path(ann) == (tree.parent[ann],)
    assert tree.user[tree.leaf("b", "ann")] is None


def test_jobs_of_nobody_count_as_those_of_one_user() -> None:
    tree = QueueTree((QueueRule("a", most_running_per_user=2),))
    assert tree.leaf("a", "") == tree.leaf("a")
    assert tree.user[tree.leaf("a")] == "" and tree.most_running(tree.leaf("a")) == 2


def test_an_open_tree_takes_any_queue() -> None:
    tree = QueueTree(())
    assert tree.open and tree.problem("x/y") == ""
    leaf = tree.leaf("x/y")
    assert [tree.name[node] for node in tree.path(leaf)] == ["x/y", "x", "the cluster"]
    assert tree.leaf("x") == tree.parent[leaf]


def test_an_unknown_queue_is_refused_with_those_that_there_are() -> None:
    problem = QueueTree(RESEARCH).problem("research/nlq")
    assert problem == (
        "there is no queue `research/nlq`; queues are research/nlp, research/vision, serving. "
        "Did you mean `research/nlp`?"
    )


def test_of_a_thousand_queues_a_dozen_are_named() -> None:
    problem = QueueTree([QueueRule(f"q{number}") for number in range(1000)]).problem("zzz")
    assert problem.endswith("q10, q11 and 988 more")


def test_a_queue_that_has_queues_takes_no_jobs_itself() -> None:
    tree = QueueTree(RESEARCH)
    assert tree.problem("research") == "`research` has queues of its own: nlp, vision"
    assert tree.problem("research/nlp") == ""


def test_a_queue_that_left_the_policy_is_counted_but_takes_no_new_jobs() -> None:
    tree = QueueTree(RESEARCH)
    gone = tree.leaf("research/audio")
    assert tree.parent[gone] == tree.queue_node("research") and tree.rule[gone] is None
    assert tree.problem("research/audio").startswith("there is no queue `research/audio`")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ((QueueRule("a"), QueueRule("a")), "told twice"),
        ((QueueRule("a/b"), QueueRule("a")), "tell `a` first"),
    ],
)
def test_a_tree_that_cannot_be_is_bad_input(rules: tuple[QueueRule, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        QueueTree(rules)


@given(st.lists(st.sampled_from(["a", "b", "a/c", "b/d/e", "f/g"])), st.booleans())
def test_parents_come_before_children_whatever_is_asked_for(
    queues: list[str], share_users: bool
) -> None:
    tree = QueueTree((QueueRule("a"), QueueRule("a/c", cohort="x")), share_users)
    for number, queue in enumerate(queues):
        leaf = tree.leaf(queue, f"u{number % 2}")
        assert tree.queue[leaf] == queue
    for node in range(1, len(tree)):
        assert tree.parent[node] < node
        assert tree.path(node) == (node, *tree.path(tree.parent[node]))
        assert node in tree.children[tree.parent[node]]
