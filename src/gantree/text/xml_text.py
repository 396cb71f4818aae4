"""XML text to elements with line numbers, safely: no entities, no external resources, no validation.

Entities of a document's own are refused, even unused ones: no tool whose files we read declares any, and they are
how a small text becomes a large one. Comments and processing instructions are left out. A DOCTYPE that names a file
(hwloc's does) is passed over.
"""

import re

from lxml import etree

from gantree.model.errors import BadFields, Problem

MAX_CHARS = 32 << 20
_PLACE = re.compile(r", line \d+, column \d+$")
_FOUND = (
    (re.compile(r"Document is empty"), "an empty text"),
    (re.compile(r"Start tag expected, '<' not found"), "text that does not begin with `<`"),
    (re.compile(r"Extra content at the end of the document"), "more text after its end"),
    (
        re.compile(r"Premature end of data in tag (\S+) line (\d+)"),
        r"the end of the text inside <\1>, which line \2 opens",
    ),
    (
        re.compile(r"Opening and ending tag mismatch: (\S+) line (\d+) and (\S+)"),
        r"</\3> where </\1> should be, which line \2 opens",
    ),
)
"""What libxml2 says of the usual slips, in words that say what was found."""
_DECLARATION = re.compile(r"\ufeff?\s*<\?xml\s[^>]*\?>")


def read_xml(text: str, source: str) -> etree._Element:
    """Return the root of an XML text; `element.sourceline` is a line. Raises BadFields where it is no such XML."""
    if len(text) > MAX_CHARS:
        raise _refused(source, None, "a larger text", f"at most {MAX_CHARS >> 20} MiB")
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        encoding="utf-8",
    )
    try:
        root = etree.fromstring(_bytes(text, source), parser)
    except etree.XMLSyntaxError as error:
        raise _refused(source, error.lineno or None, _message(error.msg or ""), "XML") from None
    dtd = root.getroottree().docinfo.internalDTD
    if dtd is not None and next(iter(dtd.iterentities()), None) is not None:
        raise _refused(source, None, "entities of its own", "XML without entity declarations")
    return root


def _message(message: str) -> str:
    """The parser's sentence as something that was found, without the line, which stands before it."""
    said = _PLACE.sub("", message)
    for pattern, words in _FOUND:
        match = pattern.fullmatch(said)
        if match:
            return match.expand(words)
    return f"text that is no XML ({said})" if said else "text that is no XML"


def _bytes(text: str, source: str) -> bytes:
    """Encode the text, its declaration blanked out: the text is decoded already. Lines stay as they are."""
    declaration = _DECLARATION.match(text)
    if declaration:
        text = "\n" * declaration[0].count("\n") + text[declaration.end() :]
    try:
        return text.removeprefix("\ufeff").encode()
    except UnicodeEncodeError:
        raise _refused(source, None, "characters that are no text", "UTF-8 text") from None


def _refused(source: str, line: int | None, found: str, allowed: str) -> BadFields:
    return BadFields([Problem(source, line, "document", found, allowed)])
