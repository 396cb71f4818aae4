"""A database that tests have one after the other: each finds it empty, and nobody from before comes into it."""

import psycopg
import pytest

from support.postgres import Server

OID = "SELECT oid FROM pg_database WHERE datname = current_database()"


def test_it_is_empty_and_goes_by_another_name_when_it_is_lent_again(postgres: Server) -> None:
    with postgres.lent_database() as first:
        stayed = psycopg.connect(first)
        for statement in (
            "CREATE TABLE t (n INT)",
            "CREATE SCHEMA other",
            "CREATE TABLE other.t (n INT)",
        ):
            stayed.execute(statement)
        stayed.commit()
        (oid,) = stayed.execute(OID).fetchall()
    with pytest.raises(psycopg.OperationalError):
        stayed.execute("SELECT 1")
    stayed.close()
    with postgres.lent_database() as second, psycopg.connect(second) as connection:
        assert connection.execute(OID).fetchall() == [oid]
        told = "SELECT schemaname FROM pg_tables WHERE schemaname !~ '^pg_|^information_schema$'"
        assert connection.execute(told).fetchall() == []
        assert connection.execute("SELECT to_regnamespace('other')").fetchall() == [(None,)]
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(first)
