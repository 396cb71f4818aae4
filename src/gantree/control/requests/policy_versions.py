"""Versions of the policy: the one in force, its replacement while jobs run, and the effect of another one.

Each submitted policy becomes a version: its text is on record with number, time and user. The newest version is in
force, also after a restart; a policy named by `gantree up --policy` replaces it and becomes a version too. A change
of the policy is an event. The turn that reads it goes on with a scheduler folded from the journal under the new policy,
as a start does, so a change and a restart give the same ledger. Going back to a version is a new version with its text.
"""

import logging
from collections.abc import Callable

from gantree.control.ports import Clock
from gantree.control.requests.policy_change import PolicyChange, change_of
from gantree.control.requests.policy_fit import check_fit
from gantree.control.requests.policy_text import PolicyText
from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.ledger import Ledger
from gantree.core.scheduler import Scheduler
from gantree.formats.policy.locations import PolicyPlaces, places_of
from gantree.formats.policy.reader import read_policy
from gantree.journal.contract import Journal
from gantree.journal.encoding.snapshots import books_of
from gantree.model.errors import BadInput, Conflict, NotFound
from gantree.model.events import Event, PolicySubmitted
from gantree.model.facts import PolicyAdopted
from gantree.policy.rules import Policy

log = logging.getLogger(__name__)


class RecordedPolicies:
    """Which version of the policy was adopted last. What was read of a journal once is not read again."""

    def __init__(
        self, journal: Journal, known: PolicyAdopted | None = None, known_to: int = 0
    ) -> None:
        """known is the newest among the facts up to known_to; 0: nothing is known yet."""
        self._journal = journal
        self._newest, self._known_to = known, known_to

    def newest(self) -> PolicyAdopted | None:
        """The version; None before the first. Raises JournalError."""
        journal, last = self._journal, self._journal.last_fact()
        if not self._known_to or journal.compacted_to() > self._known_to:
            snapshot = journal.latest_snapshot()
            versions = () if snapshot is None else books_of(snapshot.text).policies
            self._newest = versions[-1] if versions else None
            self._known_to = 0 if snapshot is None else snapshot.seq
        for recorded in journal.facts_of(PolicyAdopted, self._known_to):
            assert isinstance(recorded.fact, PolicyAdopted)
            self._newest = recorded.fact
        self._known_to = max(self._known_to, last)
        return self._newest


class PolicyVersions:
    """The versions of one journal, and changes of the policy. fold makes a scheduler of the journal under a policy."""

    def __init__(
        self,
        journal: Journal,
        otherwise: Policy,
        named: PolicyText | None,
        fold: Callable[[Policy], Scheduler],
        now: Clock,
        on_record: RecordedPolicies | None = None,
    ) -> None:
        """named is the policy that was named at the start; otherwise rules where that is None and none is on record.

        on_record is what is known already of the versions of the journal.
        """
        self._journal = journal
        self._fold = fold
        self._now = now
        self._otherwise = otherwise
        self._on_record = on_record or RecordedPolicies(journal)
        newest = self._on_record.newest()
        self.to_submit = named if newest is None or _text_of(newest) != named else None
        if newest is not None and self.to_submit is not None:
            log.warning(
                "policy %s rules, as it was named at the start, instead of version %d on record (%s)",
                self.to_submit.source,
                newest.number,
                newest.source,
            )

    @property
    def is_submitted(self) -> bool:
        """Whether the policy that was named waits in the inbox, as the last: the process before was killed then."""
        unread = self._journal.read_inbox(self._journal.cursor(), self._journal.backlog())
        waiting = [each.event for each in unread if isinstance(each.event, PolicySubmitted)]
        return bool(waiting) and _text_of(waiting[-1]) == self.to_submit

    def in_force(self) -> Policy:
        """The policy that a scheduler made of the journal has."""
        if self.to_submit is not None:
            return read_policy(self.to_submit.text, self.to_submit.source)
        newest = self._on_record.newest()
        return self._otherwise if newest is None else read_policy(newest.text, newest.source)

    @property
    def places(self) -> PolicyPlaces | None:
        """Where the version on record says what, if that rules."""
        newest = None if self.to_submit is not None else self._on_record.newest()
        return None if newest is None else places_of(newest.text, newest.source)

    def event(self, submitted: PolicyText, by: str, event_id: str) -> PolicySubmitted:
        """The event that says that a policy is to rule."""
        return _event(submitted, by, event_id, self._now())

    def under(self, event: Event, before: Scheduler) -> Scheduler | None:
        """A scheduler for the journal under the policy of an event; None, said in the log, where that suits no more."""
        assert isinstance(event, PolicySubmitted), f"{event.id} submits no policy"
        submitted = _text_of(event)
        try:
            policy = checked(submitted, before.ledger)
        except BadInput as error:
            log.error("policy %s was not adopted: %s", event.source, error)
            return None
        finally:
            if self.to_submit == submitted:
                self.to_submit = None
        return before if policy == before.policy else self._fold(policy)


def checked(submitted: PolicyText, ledger: Ledger) -> Policy:
    """The policy of a text, if it suits the cluster and the jobs. Raises BadInput (BadFields) where it does not."""
    policy = read_policy(submitted.text, submitted.source)
    if ledger.site.described is not None:
        places = places_of(submitted.text, submitted.source)
        check_fit(policy, ledger.site.described, ledger, places)
    return policy


def tried(view: ReadView, submitted: PolicyText) -> PolicyChange:
    """What would change if this policy ruled from now on; nothing is changed. Raises as `checked`."""
    policy = checked(submitted, view.ledger)
    event = _event(submitted, "", "what-if", view.now)
    return change_of(view.ledger, view.fold(policy), event)


def version_of(ledger: Ledger, number: int) -> PolicyAdopted:
    """A version by its number. Raises NotFound."""
    for version in ledger.policies:
        if version.number == number:
            return version
    if not ledger.policies:
        raise NotFound("no version of the policy is on record: none was ever applied or named")
    raise NotFound(
        f"there is no version {number} of the policy, only 1 to {ledger.policies[-1].number}"
    )


def in_force_already(ledger: Ledger, submitted: PolicyText) -> bool:
    """Whether a text is that of the version in force."""
    return bool(ledger.policies) and ledger.policies[-1].text == submitted.text


def adopted(ledger: Ledger, submitted: PolicyText) -> PolicyAdopted:
    """The version that a text has become. Raises Conflict where something has come between."""
    if not in_force_already(ledger, submitted):
        raise Conflict(
            f"policy {submitted.source} was not adopted: it does not suit the cluster or the jobs any more; "
            "look with `gantree policy check`"
        )
    return ledger.policies[-1]


def _event(submitted: PolicyText, by: str, event_id: str, now: float) -> PolicySubmitted:
    return PolicySubmitted(
        id=event_id, observed_at=now, text=submitted.text, source=submitted.source, by=by
    )


def _text_of(version: PolicyAdopted | PolicySubmitted) -> PolicyText:
    return PolicyText(version.text, version.source)
