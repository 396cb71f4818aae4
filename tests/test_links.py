"""Each link from one page of the project to another leads to a page, and to a heading, that exists."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "examples", "deploy", "integrations", "benchmarks")
PAGES = sorted([*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))])  # fmt: skip
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([\w-]+))?\)")


@cache
def headings(page: Path) -> frozenset[str]:
    """The anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    lost = []
    for to, heading in LINK.findall(page.read_text()):
        target = (page.parent / to).resolve() if to else page
        if not target.exists() or (heading and heading not in headings(target)):
            lost.append(f"{to}#{heading}")
    assert not lost
