"""`gantree top` in a real terminal of 80 x 24 against real daemons, one of them with 16,384 GPUs."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.top.drawing import strip
from gantree.cli.top.feed import Feed, Selection
from gantree.model.errors import BadInput
from gantree.model.phases import ENDED, HOLDING
from support.daemon import Daemon
from support.tmux import Terminal

Gantree = Callable[..., Any]
CLUSTER = """
name: small
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
"""
POLICY = "queues: [{name: research, guarantee: {gpus: 4}}, {name: product}]"
SPINES, LEAVES, NODES, GPUS = 8, 16, 16, 8
FULL_LEAF = 5
"""Of the last spine: all of its nodes are taken."""


def large_cluster() -> str:
    """16,384 GPUs: spine s7 has one full leaf, all else is free."""
    lines = ["name: large", "tiers: [spine, leaf, node]"]
    lines += [f"machines: {{m8: {{gpus: {GPUS}, gpu: H100-80GB}}}}", "nodes:"]
    for spine in range(SPINES):
        for leaf in range(LEAVES):
            names = f"s{spine}l{leaf}n[0-{NODES - 1}]"
            lines.append(f"- {{names: '{names}', machine: m8, at: {{spine: s{spine}, leaf: l{leaf}}}}}")  # fmt: skip
    lines.append("allocations:")
    gpus = list(range(GPUS))
    for node in range(NODES):
        lines.append(f"- {{job: old-{node}, node: s{SPINES - 1}l{FULL_LEAF}n{node}, gpus: {gpus}}}")
    return "\n".join(lines)


def job(name: str, queue: str, members: int, *command: str) -> dict[str, object]:
    gang = [{"role": "w", "members": members, "each": {"gpus": 4}, "run": [*command]}]
    return {"name": name, "queue": queue, "gang": gang}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("top") / "state", CLUSTER, POLICY) as running:
        prints = "printf '\\033[31mfirst words\\033[0m\\n'; sleep 1000"
        talks = job("talks", "research", 1, "bash", "-c", prints)
        running.client.submit(jobs=[talks, job("waits", "product", 3, "true")], user="ann")
        running.wait("talks", until="running")
        yield running


def opened(daemon: Daemon) -> Terminal:
    return Terminal("top", "--every", "0.2", GANTREE_STATE=str(daemon.state_dir))


def test_it_shows_cluster_queues_and_jobs_and_answers_keys(daemon: Daemon) -> None:
    with opened(daemon) as terminal:
        screen = terminal.wait_for("waits")
        lines = screen.splitlines()
        assert "GPUs 4/8 (50%)  running 1  waiting 1" in lines[0]
        assert re.search(r"│n0 +████ +4/4 ?│", screen)
        assert re.search(r"│n1 +···· +0/4 ?│", screen)
        assert re.search(r"│research +4/4 +50% +1 +0│", screen)
        assert re.search(r"│ talks +running +research +ann +4 ", screen)
        assert "? help  q quit" in lines[-1]

        terminal.press("l")
        terminal.wait_for("[0] first words")
        terminal.press("Escape")
        terminal.wait_for("│ talks ")
        terminal.press("Down", "w")
        terminal.wait_for("may use 8 GPUs at most, 12 are asked for")
        terminal.press("Escape")
        terminal.wait_for("│ talks ")
        terminal.press("?")
        terminal.wait_for("the last lines of its output")
        terminal.press("Escape")
        terminal.wait_for(lambda screen: "the last lines of its output" not in screen)
        terminal.press("q")
        assert terminal.exit_status() == 0


def test_a_job_is_cancelled_after_a_question(daemon: Daemon) -> None:
    daemon.client.submit(jobs=[{**job("doomed", "product", 1, "true"), "hold": True}])
    with opened(daemon) as terminal:
        terminal.wait_for("doomed")
        terminal.press("Down", "Down", "c")
        terminal.wait_for("Cancel doomed?")
        terminal.press("n")
        terminal.wait_for(lambda screen: "Cancel doomed?" not in screen)
        assert daemon.client.job("doomed")["phase"] == "pending"
        terminal.press("c")
        terminal.wait_for("Cancel doomed?")
        terminal.press("y")
        terminal.wait_for(lambda screen: not re.search(r"│ doomed ", screen))
    assert daemon.client.job("doomed")["phase"] == "cancelled"


def test_jobs_are_selected_by_words_that_are_checked(daemon: Daemon) -> None:
    with opened(daemon) as terminal:
        terminal.wait_for("waits")
        terminal.press("/")
        terminal.wait_for("empty: all")
        terminal.write("queue=reserch")
        terminal.press("Enter")
        terminal.wait_for("Did you mean `research`?")
        terminal.press("C-u")
        terminal.wait_for(lambda screen: "queue=reserch" not in screen)
        terminal.write("queue=research")
        terminal.wait_for("queue=research")
        terminal.press("Enter")
        screen = terminal.wait_for(lambda screen: "│ waits" not in screen)
        assert "queue=research" in screen.splitlines()[0]
        terminal.press("a")
        terminal.wait_for("│ waits")
        terminal.press("C-c")
        assert terminal.exit_status() == 0


def test_it_goes_on_when_the_daemon_is_back(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as other, opened(other) as terminal:
        terminal.wait_for("waiting 0")
        other.kill()
        screen = terminal.wait_for("trying again")
        assert "│n0 " in screen
        other.start()
        other.client.submit(jobs=[{**job("later", "default", 1, "true"), "hold": True}])
        terminal.wait_for("│ later")
        terminal.wait_for("waiting 1")  # counts come with a request of their own


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("large") / "state", large_cluster()) as running:
        yield running


def test_16384_gpus_fit_into_80_columns_and_are_opened_tier_by_tier(large: Daemon) -> None:
    with opened(large) as terminal:
        screen = terminal.wait_for("large: 8 x spine")
        assert "GPUs 128/16,384 (1%)" in screen
        assert max(map(len, screen.splitlines())) <= 80
        rows = [
            re.search(rf"│s{spine} +([·█]+) +[0-9,]+/2,048 ?│", screen) for spine in range(SPINES)
        ]
        strips = [row[1] for row in rows if row]
        assert strips == ["·" * LEAVES] * (SPINES - 1) + ["·" * FULL_LEAF + "█" + "·" * 10]
        terminal.press("BTab", "BTab", *["Down"] * 7, "Enter")
        terminal.wait_for("s7: 16 x leaf")
        terminal.press(*["Down"] * FULL_LEAF, "Enter")
        screen = terminal.wait_for("s7/l5: 16 x node")
        assert re.search(r"│s7l5n0 +████████ +8/8.?│", screen)
        terminal.press("u")
        terminal.wait_for("s7: 16 x leaf")
        terminal.press("u")
        terminal.wait_for("large: 8 x spine")


def test_a_refresh_asks_for_pages_only(large: Daemon) -> None:
    """However many jobs there are: here more than a page."""
    held = [{**job(f"j{number}", "default", 1, "true"), "hold": True} for number in range(120)]
    large.client.submit(jobs=held)
    snapshot = Feed(large.client).read()
    assert (len(snapshot.jobs), snapshot.more, snapshot.counts) == (50, True, (0, 120))


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        ("", Selection()),
        ("queue=a/b user=ann", Selection(queue="a/b", user="ann")),
        ("phase=running,failed train", Selection(name="train", phases=("running", "failed"))),
    ],
)
def test_a_filter_is_read_as_it_is_written(text: str, selection: Selection) -> None:
    assert Selection.parse(text) == selection
    assert Selection.parse(str(selection)) == selection


@pytest.mark.parametrize(("text", "hint"), [("quueue=a", "`queue`"), ("phase=runing", "`running`")])
def test_an_unknown_word_of_a_filter_is_bad_input(text: str, hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        Selection.parse(text)


def test_a_filter_of_phases_narrows_each_part_of_the_list() -> None:
    selection = Selection(phases=("running", "failed"))
    assert (selection.narrowed(HOLDING), selection.narrowed(ENDED)) == (("running",), ("failed",))
    assert Selection(phases=("pending",)).narrowed(HOLDING) is None


def test_a_strip_shows_what_is_free_used_and_out_of_use() -> None:
    assert strip([[8, 8], [8, 7], [8, 4], [8, 0], [0, 0]], 10).plain == "·▂▅█x"
    assert strip([[8, 8], [8, 0], [8, 0], [8, 0]], 2).plain == "▅█"


def test_without_a_terminal_it_says_what_to_use_instead(gantree: Gantree) -> None:
    outcome = gantree("top")
    assert (outcome.code, outcome.out) == (2, "")
    assert "needs a terminal; gantree jobs --watch" in outcome.err


def test_without_a_daemon_it_is_one_sentence(tmp_path: Path) -> None:
    with Terminal("top", GANTREE_STATE=str(tmp_path)) as terminal:
        terminal.wait_for("start one: gantree up")
        assert terminal.exit_status() == 1
