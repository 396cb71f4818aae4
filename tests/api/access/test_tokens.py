"""How long tokens are good. What they allow is in `test_token_permissions`, sessions are in `test_sessions`."""

import asyncio
from pathlib import Path

from gantree.api.access.tokens import Tokens, TokenSpec
from gantree.journal.access_store import AccessStore
from gantree.journal.sqlite import SqliteJournal


def test_a_token_is_good_until_the_very_moment_at_which_it_expires(tmp_path: Path) -> None:
    journal, now_s = SqliteJournal(tmp_path), [1_000.0]
    tokens = Tokens(AccessStore(journal.database), lambda: now_s[0])

    async def good_at(*moments_s: float) -> list[bool]:
        made = await tokens.issue(TokenSpec("ann", "", "", "otto", expires_at=1_060.0))
        found = []
        for moment_s in moments_s:
            now_s[0] = moment_s
            found.append(await tokens.find(made.secret) is not None)
        return found

    assert asyncio.run(good_at(1_000.0, 1_059.5, 1_060.0, 5_000.0)) == [True, True, False, False]
    journal.close()
