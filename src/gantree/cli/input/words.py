"""Words on the command line of which only some are allowed. An unknown one is an error with a suggestion."""

from collections.abc import Iterable

from gantree.model.errors import BadInput

MOST_NAMED = 40
"""Of the allowed words; of more only the first are named: a site may have thousands of queues."""


def unknown_word(
    option: str, word: str, allowed: Iterable[str], also: Iterable[str] = ()
) -> BadInput:
    """The error for a word that is none of those allowed; also are allowed words that it only may suggest."""
    from gantree.text.words import did_you_mean, shortened  # noqa: PLC0415 - only for an error

    words = tuple(allowed)
    named = ", ".join(words[:MOST_NAMED]) + (", ..." if len(words) > MOST_NAMED else "")
    hint = did_you_mean(word, (*words, *also))
    text = f"{option}: found {shortened(word)!r}; allowed: {named}."
    return BadInput(f"{text} {hint}".rstrip())


def checked_words(option: str, texts: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """The words of texts that hold one or several, with commas between them. Raises BadInput."""
    words = tuple(word.strip().lower() for text in texts for word in text.split(","))
    known = tuple(allowed)
    for word in words:
        if word not in known:
            raise unknown_word(option, word, known)
    return words
