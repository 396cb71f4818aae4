"""The current tables of a journal, the same for every database. Their history is in `migrations`.

`inbox` is what happened, `turns`, `facts` and `orders` what was decided, `set_aside` what could not be decided
about. `epochs` says who has led, `leadership` (one row) who leads now. `snapshots` stand for the facts before them,
and `compacted` (one row) says up to which numbers rows were therefore deleted. A compacted event keeps its row,
with its id and no data, so that the id stays refused. `tokens` and `audit` are no part of what is decided: they say
who may ask and who did (`access_store`). `gantree_version` is Alembic's. Other tables:
`history_tables`, `notification_tables`.
"""

from sqlalchemy import (
    REAL,
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)
from sqlalchemy.types import TypeEngine

VERSION = 11
"""The version of these tables: the number of the newest migration. SQLite files have it as user_version, too."""
VERSION_TABLE = "gantree_version"

METADATA = MetaData()
NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""Where numbers grow for ever. SQLite's own integers do, and it calls them so in primary keys only."""

SECONDS: TypeEngine[float] = Double().with_variant(REAL, "sqlite")
"""A time since 1970. SQLite's own reals are double, and it calls them so."""


def number(name: str) -> Column[int]:
    """A column that is never empty and counts from 0."""
    return Column(name, NUMBER, nullable=False)


def counted(name: str) -> Column[int]:
    """A primary key that we count ourselves."""
    return Column(name, NUMBER, primary_key=True, autoincrement=False)


def encoded() -> tuple[Column[str], Column[int], Column[str]]:
    """The columns of `codec.Encoded`."""
    return (
        Column("kind", Text, nullable=False),
        Column("version", Integer, nullable=False),
        Column("data", Text, nullable=False),
    )


inbox = Table(
    "inbox",
    METADATA,
    counted("seq"),
    Column("id", Text, nullable=False, unique=True),
    Column("observed_at", SECONDS, nullable=False),
    *encoded(),
)
turns = Table(
    "turns",
    METADATA,
    counted("turn"),
    number("epoch"),
    number("cursor"),
    Column("last_fact", NUMBER, nullable=False, server_default="0"),
    Column("last_order", NUMBER, nullable=False, server_default="0"),
)
facts = Table("facts", METADATA, counted("seq"), number("turn"), *encoded())
orders = Table("orders", METADATA, counted("seq"), number("turn"), *encoded())
set_aside = Table(
    "set_aside",
    METADATA,
    Column("seq", NUMBER, ForeignKey(inbox.c.seq), primary_key=True, autoincrement=False),
    Column("error", Text, nullable=False),
)
epochs = Table(
    "epochs",
    METADATA,
    counted("epoch"),
    Column("holder", Text),
    Column("began_at", SECONDS),
)
leadership = Table(
    "leadership",
    METADATA,
    counted("one"),
    number("epoch"),
    Column("holder", Text),
    Column("until", SECONDS, nullable=False),
)
snapshots = Table(
    "snapshots",
    METADATA,
    counted("turn"),
    number("seq"),
    number("cursor"),
    Column("sha256", String(64), nullable=False),
    Column("text", Text, nullable=False),
)
compacted = Table(
    "compacted",
    METADATA,
    counted("one"),
    number("turn"),
    number("fact"),
    number("order"),
    number("event"),
)
tokens = Table(
    "tokens",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("user_name", Text, nullable=False),
    Column("groups", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("parent", Text),
    Column("created_at", SECONDS, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", SECONDS),
    Column("revoked_at", SECONDS),
)
audit = Table(
    "audit",
    METADATA,
    Column("seq", NUMBER, primary_key=True, autoincrement=True),
    Column("at", SECONDS, nullable=False),
    Column("who", Text, nullable=False),
    Column("door", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("request_id", Text, nullable=False),
)
gantree_version = Table(
    VERSION_TABLE,
    METADATA,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
