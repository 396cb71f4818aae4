"""The rules of the house that no linter knows: sizes, words, the lifecycle table, the lock, links, the waterline."""

import ast
import builtins
import re
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gantree.model.events import EVENTS
from gantree.model.fact_kinds import FACTS
from gantree.model.orders import ORDERS
from gantree.model.phases import ENDED, HOLDING, NEXT, Phase, StopCause
from gantree.model.verdicts import Gate

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
ALL_PYTHON = sorted(
    path
    for top in ("src", "tests", "benchmarks", "examples")
    for path in (ROOT / top).rglob("*.py")
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LOCKS = ("bootstrap", "dev", "run")
INTEGRATIONS = sorted(path.stem for path in (ROOT / "requirements").glob("integrations-*.in"))
TOP_PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "gantree").glob("*/__init__.py"))
BELOW_WATERLINE = ("core", "accounting", "planning", "policy", "placement", "topology", "model")

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 500

WORDS = """
    job gang role member process rank shape slot slice attempt restart checkpoint request cluster node machine
    tier domain fabric link rail placement occupancy policy queue cohort quota cell preempt victim claim event
    fact order decision ledger driver executor inbox cursor turn journal epoch inventory shim grace waterline
    floor refusal gate never nearest relaxation error bug defragment busbw
"""
PAIRS = ("borrow / reclaim", "reserve / backfill", "health / load", "required / preferred")


class _Source(NamedTuple):
    """What the rules ask of a file; the trees themselves, kept, would be 150 MB for the garbage collector to walk."""

    name: str
    is_described: bool
    functions: tuple[tuple[int, str, int], ...]  # line, name, lines
    classes: tuple[str, ...]
    impure_uses: tuple[tuple[int, str], ...]


@cache
def _sources() -> tuple[_Source, ...]:
    return tuple(map(_read, SOURCES))


def _read(path: Path) -> _Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions, classes = [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.lineno, node.name, (node.end_lineno or 0) - node.lineno + 1))
    return _Source(
        str(path.relative_to(ROOT)), bool(ast.get_docstring(tree)), tuple(functions), tuple(classes),
        tuple(_impure_uses(tree)),
    )  # fmt: skip


def _glossary() -> str:
    return (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def _links(document: Path) -> list[str]:
    """Targets of the links in a document, without web addresses, and without code blocks and spans."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", text)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def _pins(lock: str) -> dict[str, list[str]]:
    """Versions of each package in a lock: one, or several for different Python versions."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    pins: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, flags=re.MULTILINE):
        pins.setdefault(canonicalize_name(name), []).append(version)
    return pins


def test_no_function_is_longer_than_70_lines() -> None:
    too_long = [
        f"{source.name}:{line} {name}: {lines} lines"
        for source in _sources()
        for line, name, lines in source.functions
        if lines > MAX_FUNCTION_LINES
    ]
    assert too_long == []


def test_no_file_is_longer_than_500_lines() -> None:
    lines_of_file = {
        str(path.relative_to(ROOT)): path.read_text("utf-8").count("\n") for path in SOURCES
    }
    assert {name: n for name, n in lines_of_file.items() if n > MAX_FILE_LINES} == {}


def test_every_module_says_what_belongs_in_it() -> None:
    assert [source.name for source in _sources() if not source.is_described] == []


def test_no_package_or_module_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}
    assert [path for path in SOURCES if drawers & {path.stem, path.parent.name}] == []


def test_every_ignore_of_a_tool_has_its_reason_beside_it() -> None:
    ignore = re.compile(
        r"#\s*(?:noqa(?!:)|noqa: [A-Z]+\d+(?:[, ]+[A-Z]+\d+)*|type: ignore(?:\[[^]]*\])?)(.*)"
    )
    bare = []
    for path in ALL_PYTHON:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            if "noqa" not in line and "type: ignore" not in line:
                continue  # for the time that it takes to search each line for the pattern
            found = ignore.search(line) if path != Path(__file__).resolve() else None
            above = lines[number - 1].strip() if number else ""
            if found and not re.search(r"\w", found[1]) and not above.startswith("#"):
                bare.append(f"{path.relative_to(ROOT)}:{number + 1}: {line.strip()}")
    assert bare == []


def _impure_uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, use) of the outside world that comes in without an import of its own."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="open" | "print" | "input" | "breakpoint" as name)):
                yield node.lineno, name
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=attr) if attr in {
                "random", "load", "save", "savez", "loadtxt", "savetxt", "fromfile", "memmap",
            }:  # fmt: skip
                yield node.lineno, f"numpy.{attr}"
            case ast.ImportFrom(module=str(module)) if module.startswith("numpy.random"):
                yield node.lineno, module


def test_below_the_waterline_nothing_opens_prints_asks_or_draws_lots() -> None:
    wet = [
        f"{source.name}:{line}: {use}"
        for source in _sources()
        if source.name.removeprefix("src/gantree/").split("/")[0] in BELOW_WATERLINE
        for line, use in source.impure_uses
    ]
    assert wet == []


@pytest.mark.parametrize(
    ("source", "use"),
    [
        ("open('x')", "open"),
        ("print(1)", "print"),
        ("np.random.default_rng()", "numpy.random"),
        ("numpy.load('x')", "numpy.load"),
        ("from numpy.random import default_rng", "numpy.random"),
    ],
)
def test_the_waterline_check_sees(source: str, use: str) -> None:
    assert [found for _, found in _impure_uses(ast.parse(source))] == [use]


def test_the_glossary_defines_the_words_of_the_house() -> None:
    defined = set(re.findall(r"^\| ([^|`]+?) \|", _glossary(), flags=re.MULTILINE))
    assert [word for word in (*WORDS.split(), *PAIRS) if word not in defined] == []


@pytest.mark.parametrize("names", [EVENTS, FACTS, ORDERS], ids=["events", "facts", "orders"])
def test_the_glossary_lists_every_type_of_event_fact_and_order(names: dict[str, type]) -> None:
    assert [name for name in names if f"`{name}`" not in _glossary()] == []


@pytest.mark.parametrize("words", [Phase, StopCause, Gate])
def test_the_glossary_lists_every_phase_cause_and_gate(words: type[StrEnum]) -> None:
    assert [word for word in words if f"`{word.value}`" not in _glossary()] == []


def test_every_type_that_the_glossary_names_exists() -> None:
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`", _glossary()))
    classes = {name for source in _sources() for name in source.classes}
    assert len(named) > len(EVENTS) + len(FACTS)
    assert sorted(named - classes - set(vars(builtins))) == []


def _reachable(start: Phase) -> set[Phase]:
    seen, waiting = {start}, [start]
    while waiting:
        for phase in sorted(NEXT[waiting.pop()] - seen):
            seen.add(phase)
            waiting.append(phase)
    return seen


def test_the_lifecycle_table_has_a_row_for_every_phase() -> None:
    assert list(NEXT) == list(Phase)


def test_every_phase_can_be_reached_from_pending() -> None:
    assert _reachable(Phase.PENDING) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_a_phase_ends_exactly_if_nothing_comes_next(phase: Phase) -> None:
    assert (not NEXT[phase]) == (phase in ENDED)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in ENDED])
def test_from_every_living_phase_a_job_can_fail_or_be_cancelled(phase: Phase) -> None:
    assert {Phase.FAILED, Phase.CANCELLED} <= NEXT[phase]


def test_a_job_waits_holds_its_place_or_has_ended_and_never_two_of_them() -> None:
    assert HOLDING | ENDED | {Phase.PENDING} == set(Phase)
    assert not HOLDING & ENDED
    assert Phase.PENDING not in HOLDING | ENDED


def test_a_place_is_only_ever_taken_from_pending_through_starting() -> None:
    ways_in = {
        (before, after)
        for before in Phase
        for after in NEXT[before] & HOLDING
        if before not in HOLDING
    }
    assert ways_in == {(Phase.PENDING, Phase.STARTING)}


@pytest.mark.parametrize("lock", [*LOCKS, *INTEGRATIONS])
def test_a_lock_holds_pins_and_hashes_and_no_address_or_option(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    pin = r"[A-Za-z0-9._-]+==\S+(?: ; [^\n]+)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+(?:    #[^\n]*\n)*"
    assert re.fullmatch(f"(?:{pin})+", text), re.sub(pin, "", text)[:300]
    assert "://" not in text


@pytest.mark.parametrize("path", ["requirements/bootstrap.in", "requirements/build.in", "Makefile"])
def test_no_address_slips_into_what_the_installation_reads(path: str) -> None:
    assert re.findall(r"\w+://|--\S*index\S*|--find-links", (ROOT / path).read_text("utf-8")) == []


def test_every_dependency_is_pinned_to_versions_that_the_project_admits() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    run, dev = _pins("run"), _pins("dev")
    wanted = [(text, run) for text in project["project"]["dependencies"]]
    wanted += [(text, dev) for text in project["dependency-groups"]["dev"]]
    wanted += [(text, dev) for text in project["build-system"]["requires"]]
    for text, pins in wanted:
        requirement = Requirement(text)
        versions = pins.get(canonicalize_name(requirement.name), [])
        assert versions, f"{text} is not in the lock: make lock"
        assert all(version in requirement.specifier for version in versions), text


def test_development_runs_the_versions_that_deployments_run() -> None:
    run, dev = _pins("run"), _pins("dev")
    assert {name: dev.get(name) for name in run} == run


def test_torch_stays_out_of_the_locks() -> None:
    assert [lock for lock in LOCKS if "torch" in _pins(lock)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    assert [target for target in _links(document) if not _leads_somewhere(document, target)] == []


def _leads_somewhere(document: Path, target: str) -> bool:
    name, _, heading = target.partition("#")
    path = document.parent / name if name else document
    if not path.exists():
        return False
    return not heading or path.suffix != ".md" or heading in _anchors(path)


@cache
def _anchors(document: Path) -> frozenset[str]:
    """The headings of a document as GitHub makes anchors of them."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings)


MODULE = re.compile(rf"(?:gantree\.)?((?:{'|'.join(TOP_PACKAGES)})(?:\.\w+){{2,}})")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_scripts_that_a_document_names_exist(document: Path) -> None:
    """In code spans: dotted names below a package of gantree, and paths of Python files."""
    spans = re.findall(r"`([^`\n]+)`", document.read_text(encoding="utf-8"))
    named = [found[1] for span in spans if (found := MODULE.match(span))]
    paths = [path for span in spans for path in re.findall(r"[\w.-]+/[\w./-]+\.py\b", span)]
    assert [name for name in named if not _is_defined(name.split("."))] == []
    folders = (ROOT, ROOT / "src" / "gantree", document.parent)
    assert [path for path in paths if not any((top / path).exists() for top in folders)] == []


def _is_defined(parts: list[str]) -> bool:
    """Whether a dotted name is a module, or a module and names that occur in it; web addresses count as defined."""
    if parts[-1] in ("io", "org"):
        return True
    for length in range(len(parts), 0, -1):
        path = (ROOT / "src" / "gantree").joinpath(*parts[:length])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.exists():
            text = file.read_text(encoding="utf-8")
            return all(re.search(rf"\b{name}\b", text) for name in parts[length:])
    return False


def test_decisions_are_numbered_without_gaps_and_say_what_was_given_up() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [path.name[:4] for path in records] == [f"{n:04}" for n in range(1, len(records) + 1)]
    for record in records:
        text = record.read_text(encoding="utf-8")
        if "Status: replaced by [" in text:
            continue
        headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
        assert headings == ["Context", "Choice", "What we gave up"], record.name


def test_how_many_examples_a_property_gets_can_be_multiplied() -> None:
    fixed = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"max_examples=\d", path.read_text(encoding="utf-8"))
    ]
    assert fixed == [], "max_examples=examples(...) of support.examples; see make soak"


def test_a_release_has_each_heading_of_the_changelog_once() -> None:
    for release in re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE):
        headings = re.findall(r"^### .*$", release, flags=re.MULTILINE)
        assert sorted(set(headings)) == sorted(headings)
