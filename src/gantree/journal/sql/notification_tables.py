"""The tables of notifications: those that are not delivered yet, and up to which fact they were made.

A row of `notifications` is a message to one address; seq is that of its fact, target is where it goes (a host and port)
and next_at the moment of the next try. `notification_mark` (one row): null until notifications are first switched on.
"""

from sqlalchemy import Column, Index, PrimaryKeyConstraint, Table, Text

from gantree.journal.sql.tables import METADATA, NUMBER, SECONDS, counted, number

notifications = Table(
    "notifications",
    METADATA,
    number("seq"),
    Column("channel", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("at", SECONDS, nullable=False),
    number("tries"),
    Column("next_at", SECONDS, nullable=False),
    PrimaryKeyConstraint("seq", "channel", name="notifications_pkey"),
)
Index("notifications_by_target", notifications.c.target, notifications.c.next_at)

notification_mark = Table("notification_mark", METADATA, counted("one"), Column("cursor", NUMBER))
