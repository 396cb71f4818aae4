"""The PostgreSQL journal: the contracts, and what is particular to a server that several daemons share."""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, make_url

from gantree.journal.access_store import AccessStore
from gantree.journal.contract import LONGEST_LEASE_S, Journal
from gantree.journal.encoding.codec import EVENT_CODEC
from gantree.journal.postgres import PostgresJournal, PostgresReader, _database, patient
from gantree.journal.sql import journal_statements
from gantree.journal.sql.database import Database
from gantree.journal.sql.journal import event_row
from gantree.journal.sql.statements import Row
from gantree.model.errors import BadInput, JournalError
from gantree.model.facts import GangRunning
from gantree.testing.compaction_contract import CompactionContract
from gantree.testing.journal_contract import JournalContract, led, tick
from gantree.testing.leadership_contract import LeadershipContract
from support.postgres import Server


class TestPostgres(JournalContract, LeadershipContract, CompactionContract):
    @pytest.fixture(autouse=True)
    def address(self, database_url: str) -> None:
        self.url = database_url

    def open(self, place: Path) -> Journal:
        return PostgresJournal(self.url)


def two(url: str) -> tuple[PostgresJournal, PostgresJournal]:
    return PostgresJournal(url), PostgresJournal(url)


def name_of(url: str) -> str:
    """The database in a URL."""
    return url.partition("@/")[2].partition("?")[0]


def led_at_last(journal: Journal, holder: str) -> int:
    """The epoch that begins as soon as the lease of another has run out."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        epoch = journal.lead(holder, 60)
        if epoch is not None:
            return epoch
    raise AssertionError("the lease does not run out")


def test_while_one_leads_no_other_does(database_url: str) -> None:
    one, other = two(database_url)
    epoch = one.lead("one", 600)
    assert other.lead("other", 600) is None
    assert one.lead("one", 600) is None, "not even the same one anew"
    assert other.leader() == (epoch, "one")
    one.resign(epoch or 0)
    assert other.lead("other", 600) == 2
    one.close()
    other.close()


def test_when_the_lease_has_run_out_another_leads_and_the_first_writes_nothing(
    database_url: str,
) -> None:
    one, other = two(database_url)
    old = one.lead("one", 0.3)
    assert old == 1
    one.append_inbox([tick(1)], old)
    assert led_at_last(other, "other") == 2
    with pytest.raises(JournalError, match="epoch 2 has begun, 1 is over"):
        one.append_inbox([tick(2)], old)
    assert not one.renew(old, 60)
    assert len(other.read_inbox(0, 9)) == 1
    one.close()
    other.close()


def test_a_lease_from_before_the_databases_clock_was_set_back_keeps_nobody_away(
    database_url: str,
) -> None:
    one, other = two(database_url)
    assert one.lead("one", 3.0) == 1
    set_back = "UPDATE leadership SET until = until + 3600"  # as it looks from an hour earlier
    with one.database.reading() as connection:
        connection.exec_driver_sql(set_back)
    assert one.renew(1, 3.0), "a leader that lives sets it right"
    assert other.lead("other", 3.0) is None
    with one.database.reading() as connection:
        connection.exec_driver_sql(set_back)
    assert other.lead("other", 3.0) == 2
    one.close()
    other.close()


def test_daemons_with_leases_of_other_lengths_wait_for_each_other(database_url: str) -> None:
    one, other = two(database_url)
    assert one.lead("one", LONGEST_LEASE_S) == 1
    assert other.lead("other", 2.0) is None
    one.resign(1)
    assert other.lead("other", 2.0) == 2
    assert one.lead("one", LONGEST_LEASE_S) is None
    one.close()
    other.close()


def test_a_lease_that_is_renewed_does_not_run_out(database_url: str) -> None:
    one, other = two(database_url)
    epoch = one.lead("one", 0.0) or 0
    assert one.renew(epoch, 600)
    assert other.lead("other", 600) is None
    one.close()
    other.close()


def test_of_many_that_would_lead_at_once_exactly_one_does(database_url: str) -> None:
    journals = [PostgresJournal(database_url) for _ in range(6)]
    for turn in range(1, 6):
        with ThreadPoolExecutor(len(journals)) as pool:
            epochs = list(pool.map(lambda journal: journal.lead("x", 600), journals))
        assert [epoch for epoch in epochs if epoch is not None] == [turn]
        journals[0].resign(turn)
    for journal in journals:
        journal.close()


def test_many_first_starts_at_once_make_one_journal(database_url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        journals = list(pool.map(PostgresJournal, [database_url] * 6))
    led(journals[0])
    assert {journal.leader()[0] for journal in journals} == {1}
    for journal in journals:
        journal.close()


def test_a_lease_is_renewed_while_a_long_turn_is_written(database_url: str) -> None:
    journal = PostgresJournal(database_url)
    epoch = journal.lead("one", 600) or 0
    with journal._leading(epoch), ThreadPoolExecutor(1) as pool:
        assert pool.submit(journal.renew, epoch, 600).result(timeout=300)
    journal.close()


PAUSED = """
import os, signal, sys
from gantree.journal.postgres import PostgresJournal
from gantree.model.errors import JournalError
from gantree.testing.journal_contract import tick
journal = PostgresJournal(sys.argv[1], lease_s=3.0)
epoch = journal.lead("paused", 0.5)
journal.append_inbox([tick(1)], epoch)
try:
    with journal._leading(epoch) as connection:
        connection.exec_driver_sql("DELETE FROM inbox")
        os.kill(os.getpid(), signal.SIGSTOP)
except JournalError as error:
    print("in the transaction:", error)
try:
    journal.append_inbox([tick(2)], epoch)
except JournalError as error:
    print("after it:", error)
print("renewed:", journal.renew(epoch, 60))
"""


def test_a_leader_that_is_paused_in_a_transaction_keeps_nobody_away_and_writes_nothing(
    database_url: str,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PAUSED, database_url], stdout=subprocess.PIPE, text=True
    ) as paused:
        os.waitid(os.P_PID, paused.pid, os.WSTOPPED)
        other = PostgresJournal(database_url)
        assert led_at_last(other, "other") == 2
        paused.send_signal(signal.SIGCONT)
        assert paused.stdout is not None
        said = paused.stdout.read().splitlines()
    assert [line.partition(":")[0] for line in said] == [
        "in the transaction",
        "after it",
        "renewed",
    ]
    assert said[1].endswith("epoch 2 has begun, 1 is over")
    assert said[2] == "renewed: False"
    assert [entry.event.id for entry in other.read_inbox(0, 9)] == ["t1"]
    other.close()


def test_a_database_of_somebody_else_is_left_alone(postgres: Server, database_url: str) -> None:
    postgres.execute("CREATE TABLE recipes (name TEXT)", name_of(database_url))
    with pytest.raises(JournalError, match="no journal of gantree"):
        PostgresJournal(database_url)
    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        assert found.fetchall() == [("recipes",)]


def test_a_schema_of_its_own_beside_others_is_enough(postgres: Server, database_url: str) -> None:
    name = name_of(database_url)
    postgres.execute("CREATE TABLE recipes (name TEXT)", name)
    postgres.execute("CREATE SCHEMA gantree", name)
    url = f"{database_url}&options=-csearch_path%3Dgantree"
    journal = PostgresJournal(url)
    journal.append_inbox([tick(1)], led(journal))
    journal.close()
    again = PostgresJournal(url)
    assert len(again.read_inbox(0, 9)) == 1
    again.close()


def test_a_reader_makes_no_tables(database_url: str) -> None:
    with pytest.raises(JournalError, match="holds no journal"):
        PostgresReader(database_url)
    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert found.fetchall() == [(0,)]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://gantree:sesame@127.0.0.1:1/x",
        "postgresql://gantree@127.0.0.1:1/x?password=sesame",
        "postgresql://gantree:sesame@/x?host=/nowhere",
        "postgresql://gantree:sesame@127.0.0.1:1/x?nonsense=sesame",
        "postgresql://gantree:sesame@127.0.0.1:port/x",
        "mysql://gantree:sesame@127.0.0.1:1/x",
        "postgresql://gantree:sesame@127.0.0.1",
        "gantree:sesame@127.0.0.1",
    ],
)
def test_an_address_that_leads_nowhere_is_one_line_without_the_password(address: str) -> None:
    with pytest.raises((JournalError, BadInput)) as caught:
        PostgresJournal(address)
    told = "".join(traceback.format_exception(caught.value))
    assert "sesame" not in str(caught.value)
    assert "sesame" not in told.replace(address, "")
    assert "\n" not in str(caught.value)


def test_the_password_is_in_no_error_of_the_server(postgres: Server) -> None:
    address = f"postgresql://nobody-here:sesame@/nothing?host={postgres.place}"
    with pytest.raises(JournalError, match="postgresql://nobody-here@/nothing: ") as caught:
        PostgresJournal(address)
    assert "sesame" not in "".join(traceback.format_exception(caught.value))


def test_a_password_that_a_driver_repeats_is_taken_out() -> None:
    database = _database(make_url("postgresql+psycopg://gantree:sesame@h/d"), patient(3.0))
    error = psycopg.OperationalError("no entry for gantree:sesame")
    assert (
        str(database.error(error)) == "journal postgresql://gantree@h/d: no entry for gantree:***"
    )


def end_all_others(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_sessions_that_the_server_ended_while_nobody_used_them_are_replaced_and_nobody_sees_it(
    database_url: str,
) -> None:
    journal = PostgresJournal(database_url)
    with journal.database.reading(), journal.database.reading():  # two in the pool
        epoch = led(journal)
    for number in (1, 2):
        end_all_others(database_url)
        journal.append_inbox([tick(number)], epoch)
    end_all_others(database_url)
    assert len(journal.read_inbox(0, 9)) == 2
    journal.close()


def writer_of(database: Database) -> object:
    """The connection of a transaction that does nothing."""
    with database.writing() as connection:
        return connection.connection.driver_connection


def test_transactions_share_a_connection_and_those_that_wait_for_none_of_these_have_another(
    database_url: str,
) -> None:
    """Where they shared it under locks of their own, one closed it under the other's BEGIN, and the leader hung."""
    journal = PostgresJournal(database_url)
    audit = AccessStore(journal.database)._database
    first = writer_of(journal.database)
    assert writer_of(journal.database) is first
    assert writer_of(audit) is not first
    with journal.database.writing() as at_work, ThreadPoolExecutor(1) as pool:
        assert at_work.connection.driver_connection is first
        assert pool.submit(writer_of, audit).result(timeout=300) is not first
        with pytest.raises(JournalError), audit.writing() as connection:
            connection.exec_driver_sql("SELECT nonsense")
        assert at_work.exec_driver_sql("SELECT 1").scalar_one() == 1
    assert writer_of(journal.database) is first
    audit.close()
    journal.close()


def test_after_a_failure_anywhere_no_connection_is_kept_that_may_share_it(
    database_url: str,
) -> None:
    journal = PostgresJournal(database_url)
    first = writer_of(journal.database)
    with pytest.raises(JournalError), journal.database.reading() as connection:
        connection.exec_driver_sql("SELECT nonsense")
    assert writer_of(journal.database) is not first
    journal.close()


def test_a_session_that_the_server_ended_in_a_transaction_is_an_error_once_and_nothing_was_written(
    database_url: str,
) -> None:
    at_commit = [lambda: end_all_others(database_url), lambda: None]
    journal = PostgresJournal(database_url, lambda: at_commit.pop()() if at_commit else None)
    epoch = led(journal)
    with pytest.raises(JournalError, match="terminat"):
        journal.append_inbox([tick(1)], epoch)
    assert at_commit == [] and journal.read_inbox(0, 9) == ()
    journal.append_inbox([tick(1)], epoch)
    assert len(journal.read_inbox(0, 9)) == 1
    journal.close()


def answers(database: Database, work: Callable[[], object], place: Path) -> int:
    """How often the server said that it is ready for more, on the connection of all transactions."""
    driver: Any = writer_of(database)
    pgconn = driver.pgconn
    with place.open("w+") as told:
        pgconn.trace(told.fileno())
        work()
        pgconn.untrace()
        told.seek(0)
        return told.read().count("ReadyForQuery")


def test_a_submission_and_a_turn_wait_for_the_server_twice_however_much_is_in_them(
    database_url: str, tmp_path: Path
) -> None:
    journal = PostgresJournal(database_url)
    epoch, place = led(journal), tmp_path / "trace"
    facts = [GangRunning(at=1.0, job=f"job-{number}", attempt=1) for number in range(20)]
    works = (
        lambda: journal.append_inbox([tick(number) for number in range(20)], epoch),
        lambda: journal.commit_turn(20, facts, (), epoch),
    )
    assert [answers(journal.database, work, place) for work in works] == [2, 2]
    assert (journal.cursor(), journal.last_fact(), len(journal.read_inbox(0, 99))) == (20, 20, 20)
    journal.close()


def test_after_the_look_at_who_leads_a_session_counts_as_idle_and_its_limit_runs(
    database_url: str,
) -> None:
    journal = PostgresJournal(database_url)
    state = "SELECT state FROM pg_stat_activity WHERE pid = %s"
    seen = []
    with closing(psycopg.connect(database_url)) as other:

        def look(connection: Connection, found: list[Row]) -> None:
            driver: Any = connection.connection.driver_connection
            seen.extend([found, other.execute(state, [driver.info.backend_pid]).fetchone()])

        journal.database.write_after(journal_statements.FENCE, look)
    assert seen == [[(0, None)], ("idle in transaction",)]
    journal.close()


def test_of_what_was_sent_together_nothing_stays_where_one_of_it_fails(database_url: str) -> None:
    journal = PostgresJournal(database_url)
    epoch = led(journal)
    journal.append_inbox([tick(1)], epoch)
    journal.commit_turn(1, (), (), epoch)
    again = {"turn": 1, "epoch": epoch, "cursor": 1, "last_fact": 0, "last_order": 0}
    code = EVENT_CODEC.encode(tick(2))

    def write(connection: Connection, _: list[Row]) -> None:
        journal_statements.APPEND.run(connection, [event_row(tick(2), code)])
        journal_statements.INSERT_TURN.run(connection, [again])

    with pytest.raises(JournalError, match="duplicate key"):
        journal.database.write_after(journal_statements.FENCE, write)
    assert len(journal.read_inbox(0, 9)) == 1
    journal.append_inbox([tick(3)], epoch)
    assert [entry.event.id for entry in journal.read_inbox(0, 9)] == ["t1", "t3"]
    journal.close()


def test_a_leader_that_stopped_where_the_server_sets_it_no_limit_keeps_nobody_waiting(
    database_url: str,
) -> None:
    """In the middle of a pipeline a session counts as busy, and no limit on idle transactions ends it."""
    one, other = two(database_url)
    one.lead("one", 2.0)
    with closing(psycopg.connect(database_url)) as stopped:
        stopped.pgconn.enter_pipeline_mode()
        for statement in (b"BEGIN", b"SELECT epoch FROM leadership FOR KEY SHARE"):
            stopped.pgconn.send_query_params(statement, None)
        stopped.pgconn.send_flush_request()
        stopped.pgconn.flush()
        assert led_at_last(other, "other") == 2
    one.close()
    other.close()
