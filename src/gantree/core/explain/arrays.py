"""Explains arrays and their elements that are not split: by the explanation of the element that is considered next."""

from dataclasses import replace

from gantree.core.explain.explanation import Explanation
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.ledger import Ledger
from gantree.model.phases import Phase
from gantree.text.words import plural


def array_explanation(
    ledger: Ledger, array: ArrayState, of_next: Explanation | None
) -> Explanation:
    """How many elements wait, run and have ended, and what the next one waits for."""
    counts = array.counts(ledger.jobs)
    counted = ", ".join(f"{count:,} {phase}" for phase, count in counts.items() if count)
    sentence = f"Array of {plural(array.size, 'job')}: {counted}."
    if array.unsplit and array.held:
        sentence += f" Held by hand; `gantree release {array.array}` releases it."
    if of_next is None:
        return Explanation(array.array, array.phase(counts), sentence)
    sentence += f" Next is {of_next.job}: {of_next.sentence}"
    return replace(of_next, job=array.array, phase=array.phase(counts), sentence=sentence)


def unsplit_explanation(ledger: Ledger, job: str, of_next: Explanation | None) -> Explanation:
    """An element that waits and is not split is behind those of its array that are."""
    element = ledger.never_split(job)
    assert element is not None, f"{job} is split"
    array, offset = element
    if array.held:
        sentence = f"Waiting: held by hand; `gantree release {job}` releases it."
        return Explanation(job, Phase.PENDING, sentence)
    if of_next is None:
        return Explanation(job, Phase.PENDING, f"Waiting: behind other jobs of {array.array}.")
    before = len(array.undecided) + sum(each < offset for each in array.unsplit_offsets())
    sentence = (
        f"Waiting: behind {plural(before, 'job')} of its array. {of_next.job}: {of_next.sentence}"
    )
    return replace(
        of_next,
        job=job,
        sentence=sentence,
        ahead=(*of_next.ahead, of_next.job),
        ahead_count=of_next.ahead_count + before,
        start=None,
    )
