"""The reader beside a daemon: what becomes of questions that are long, wrong, deadly, or asked of nobody.

All of it happens in a process of its own, forked from while it has one thread, as the daemon is; see `readers_script`.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("readers_script.py")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each case, by its name."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path_factory.mktemp("state"))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr  # as a daemon may end
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_an_answer_is_of_the_moment_that_was_asked_for_or_later(said: dict[str, Any]) -> None:
    assert said["after a fact"] == [True, True]


def test_errors_of_a_question_come_back_as_what_they_are(said: dict[str, Any]) -> None:
    assert said["not found"] == "NotFound: there is no job x"
    assert said["fields"] == "BadFields: f: a: found 1; allowed: 2."
    assert said["bug"] == "RuntimeError: ZeroDivisionError: division by zero"


def test_a_question_that_takes_too_long_is_ended_and_others_are_answered_meanwhile(
    said: dict[str, Any],
) -> None:
    assert said["long"].startswith("TooLong: the query took longer than 2 s")
    assert said["short ones meanwhile"] == 20


def test_no_more_questions_are_worked_on_at_once_than_are_allowed(said: dict[str, Any]) -> None:
    assert said["most at once"] == 2


def test_who_asks_for_much_leaves_room_for_others(said: dict[str, Any]) -> None:
    assert said["begun before the modest one"] <= 2
    assert said["too many of one"] == ["TooOften: 2 queries of one wait for thei"]
    assert said["afterwards"]


def test_what_is_worked_out_apart_changes_nothing_for_the_next_question(
    said: dict[str, Any],
) -> None:
    assert said["spoilt apart"] == ["1 policy", "0 policies"]


def test_a_question_that_kills_its_process_kills_nothing_else(said: dict[str, Any]) -> None:
    assert said["deadly apart"] == "RuntimeError: its process died (SIGKILL)"
    assert said["reader after it"] == "the same"


def test_a_question_that_kills_the_reader_twice_is_refused_and_the_next_is_answered(
    said: dict[str, Any],
) -> None:
    assert said["deadly"].startswith("Unreachable: the reader died 2 times")
    assert said["reader after that"] == "another"


def test_a_reader_that_is_killed_is_replaced_and_what_was_asked_of_it_is_asked_again(
    said: dict[str, Any],
) -> None:
    assert said["asked of a reader that was killed"] == "answered"


def test_a_reader_that_hangs_keeps_nobody_waiting_and_answers_once_it_goes_on(
    said: dict[str, Any],
) -> None:
    answer, goes_on = said["asked of a reader that hangs"]
    assert answer == "Unreachable: the reader gave no answer within 0.1 s"
    assert goes_on


def test_a_question_between_the_end_of_a_reader_and_the_word_of_it_is_asked_of_the_next(
    said: dict[str, Any],
) -> None:
    assert said["asked of a socket that is closed"] == [True, True]


def test_where_the_journal_cannot_be_opened_questions_are_refused_with_the_reason(
    said: dict[str, Any],
) -> None:
    assert said["no journal"].startswith("Unreachable: there is no reader: ")
    assert "has no journal" in said["no journal"]


def test_a_host_has_readers_for_one_leadership_after_the_other(said: dict[str, Any]) -> None:
    assert isinstance(said["the next one of a host"], int)


def test_where_no_host_can_be_had_questions_are_refused_and_the_reason_is_told(
    said: dict[str, Any],
) -> None:
    assert said["no host"].startswith("Unreachable: ")
    assert "no other can be started: Resource temporarily unavailable" in said["no host"]


def test_a_host_that_is_gone_is_followed_by_another_one(said: dict[str, Any]) -> None:
    assert said["of another host"] == 6


def test_what_is_mostly_quick_is_answered_by_the_reader_until_it_took_long(
    said: dict[str, Any],
) -> None:
    assert said["here by its pace"] == [[True, True], [True, False], [True]]


def test_routes_ask_by_pace_what_is_mostly_quick_and_apart_what_is_long(
    said: dict[str, Any],
) -> None:
    assert said["where the routes ask"] == [[True, True, False], [True, True, False], [False]]


def test_a_question_that_broke_off_leaves_nothing_behind_in_the_reader(
    said: dict[str, Any],
) -> None:
    assert said["broken off"] == "RuntimeError: ZeroDivisionError: "
    assert said["after one that broke off"] == ["0 policies", True]


def test_what_the_reader_died_of_is_asked_again_apart(said: dict[str, Any]) -> None:
    assert said["deadly by its pace"] == "RuntimeError: its process died (SIGKILL)"


def test_none_of_the_processes_outlives_the_one_they_were_forked_from(
    said: dict[str, Any],
) -> None:
    assert said["busy"] and len(said["processes"]) >= 4  # hosts, reader, a question apart
    deadline = time.monotonic() + 300
    while any(map(is_there, said["processes"])):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_there(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
