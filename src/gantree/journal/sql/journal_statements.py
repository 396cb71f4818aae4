"""The statements of a journal, built once when this module is imported."""

from typing import Any

from sqlalchemy import (
    ARRAY,
    Integer,
    Text,
    any_,
    bindparam,
    func,
    literal_column,
    select,
)

from gantree.journal.sql.statements import Statement
from gantree.journal.sql.tables import (
    facts,
    inbox,
    leadership,
    orders,
    set_aside,
    turns,
)

PAGE = 1000
"""Facts or orders that are read in one go."""


FENCE = Statement(
    select(leadership.c.epoch, leadership.c.holder).with_for_update(read=True, key_share=True)
)


_ZERO, _ONE = literal_column("0", Integer), literal_column("1", Integer)


NEXT_EVENT = select(func.coalesce(func.max(inbox.c.seq), _ZERO) + _ONE).scalar_subquery()
"""With nothing in it that a driver must be given again for each row."""


NEW_EVENT: dict[str, Any] = {"seq": NEXT_EVENT} | {
    name: bindparam(name) for name in ("id", "observed_at", "kind", "version", "data")
}


APPEND = Statement(inbox.insert().values(NEW_EVENT))
"""Fails for an id that is taken, so that nothing is looked up for those that are not."""


AMONG = {
    "sqlite": inbox.c.id.in_(
        select(func.json_each(bindparam("ids")).table_valued("value").c.value)
    ),
    "postgresql": inbox.c.id == any_(bindparam("ids", type_=ARRAY(Text))),
}
"""Events whose ids are given, by kind of database."""


SEEN_AMONG = Statement(lambda dialect: select(inbox.c.id).where(AMONG[dialect]))


EVENTS_AMONG = Statement(
    lambda dialect: select(inbox.c.id, inbox.c.kind, inbox.c.version, inbox.c.data).where(
        AMONG[dialect]
    )
)


EVENT = Statement(
    select(inbox.c.kind, inbox.c.version, inbox.c.data).where(inbox.c.id == bindparam("id"))
)


PLACE = Statement(select(inbox.c.seq).where(inbox.c.id == bindparam("id")))


READ_INBOX = Statement(
    select(inbox.c.seq, inbox.c.kind, inbox.c.version, inbox.c.data)
    .where(inbox.c.seq > bindparam("after"), inbox.c.seq.not_in(select(set_aside.c.seq)))
    .order_by(inbox.c.seq)
    .limit(bindparam("most"))
)


BACKLOG = select(func.count()).where(
    inbox.c.seq > bindparam("after"), inbox.c.seq.not_in(select(set_aside.c.seq))
)


LAST_EVENT = select(inbox.c.observed_at).order_by(inbox.c.seq.desc()).limit(1)


TURN = (turns.c.turn, turns.c.cursor, turns.c.last_fact, turns.c.last_order)


LAST_TURN = Statement(select(*TURN).order_by(turns.c.turn.desc()).limit(1))


FENCE_AND_TURN = Statement(
    select(leadership.c.epoch, leadership.c.holder, *TURN)
    .join_from(
        leadership,
        turns,
        turns.c.turn == select(func.max(turns.c.turn)).scalar_subquery(),
        isouter=True,
    )
    .with_for_update(read=True, key_share=True, of=leadership)
)
"""Both in one statement: a turn waits for one answer less."""


ALL_SET_ASIDE = (
    select(inbox.c.seq, set_aside.c.error, inbox.c.kind, inbox.c.version, inbox.c.data)
    .join_from(set_aside, inbox, inbox.c.seq == set_aside.c.seq)
    .order_by(inbox.c.seq)
)


PAGES = {
    table.name: select(table.c.seq, table.c.kind, table.c.version, table.c.data)
    .where(table.c.seq > bindparam("after"))
    .order_by(table.c.seq)
    .limit(PAGE)
    for table in (facts, orders)
}


INSERT_TURN = Statement(turns.insert())


INSERT = {table.name: Statement(table.insert()) for table in (facts, orders)}
