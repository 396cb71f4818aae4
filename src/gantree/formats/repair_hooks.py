"""repair.yaml: the commands that repair a node, by the sign of its fault (`--repair-hooks`).

repairs:
  - sign: XID (79|119)                     # a regular expression that is looked for in the reason
    steps:
      - {name: reset, run: [/opt/site/reset-gpu, "{node}", "{gpu}"], timeout: 5m, retries: 1}
      - {name: burn-in, run: [/opt/site/burn-in, "{node}"], timeout: 1h, repeatable: true}
"""

import re
from collections.abc import Iterator

from gantree.formats.validation.fields import (
    Command,
    Count,
    DurationAboveZero,
    Text,
    YesNo,
)
from gantree.formats.validation.forms import Form, only_document, read_form, refuse
from gantree.model.errors import Problem
from gantree.model.repairs import RepairChain, RepairStep
from gantree.text.document import read_documents

MAX_FILE_BYTES = 1024 * 1024
TIMEOUT_S = 600.0
_PLACEHOLDER = re.compile(r"\{(\w*)\}")
PLACEHOLDERS = ("node", "gpu", "sign")


class StepForm(Form):
    """One command, run without a shell."""

    name: Text
    run: Command
    timeout: DurationAboveZero | None = None
    retries: Count | None = None
    repeatable: YesNo = False


class ChainForm(Form):
    """The steps for one kind of fault, in their order."""

    sign: Text
    steps: list[StepForm]


class RepairsForm(Form):
    """repair.yaml: of several signs that fit, the first counts."""

    repairs: list[ChainForm]


def read_repair_hooks(text: str, source: str) -> tuple[RepairChain, ...]:
    """Read the text of a file of repair hooks. source names it in errors. Raises BadFields."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(RepairsForm, documents, problems)
    form = read_form(RepairsForm, document, problems) if document else None
    if form is not None and not problems:
        problems += [each for chain in form.repairs for each in _problems(chain)]
    refuse(problems, source)
    assert form is not None
    return tuple(RepairChain(each.sign, tuple(map(_step, each.steps))) for each in form.repairs)


def _problems(chain: ChainForm) -> Iterator[Problem]:
    try:
        re.compile(chain.sign)
    except re.error as error:
        yield chain.problem("sign", f"`{chain.sign}`", f"a regular expression ({error})")
    if not chain.steps:
        yield chain.problem("steps", "no step", "at least one")
    for step in chain.steps:
        words = [word for part in step.run for word in _PLACEHOLDER.findall(part)]
        for word in dict.fromkeys(words):
            if word not in PLACEHOLDERS:
                yield step.problem("run", f"`{{{word}}}`", "{node}, {gpu} and {sign}")


def _step(form: StepForm) -> RepairStep:
    timeout_s = TIMEOUT_S if form.timeout is None else form.timeout
    return RepairStep(form.name, tuple(form.run), timeout_s, form.retries or 0, form.repeatable)
