"""Validates a `Table` into a form, and turns validation errors into Problems.

`Form` is the base of all forms. A form remembers the Table it was read from, so that checks across fields, made
after Pydantic's, can name line and field as well (`Form.problem`).

All problems of a file are told at once. So when Pydantic refuses a file, what it refused is taken out of the
tables (`_take_out`, which marks it as lost) and the rest is validated again, until a form stands or nothing is
left. That form serves one purpose: to find what else is wrong. It is never handed out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function

from gantree.formats.validation.locations import describe, locate, written_path
from gantree.formats.validation.problem_limit import (
    MAX_MISTAKES,
    SHORTER_AND_SHORTER,
    Flood,
    count_mistakes,
    cut,
    few_mistakes,
)
from gantree.model.errors import BadFields, Problem
from gantree.text.document import Document, Rows, Table
from gantree.text.words import did_you_mean, shortened

MAX_PROBLEMS = 100
OTHER_WORDS = {
    "args": "run", "cmd": "run", "command": "run", "count": "members", "environment": "env", "replicas": "members",
    "resources": "each", "working_dir": "workdir",
}  # fmt: skip
"""What other tools call a field, and its name here."""
_UNWRITTEN = Table("", 0)
_ORIGIN = "_origin"


def empty(kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """The default of a field that may hold many: made for each form, where Pydantic would copy one deeply."""
    return Field(default_factory=kind, json_schema_extra={"default": kind()})


class Form(BaseModel):
    """What one mapping of a file may hold. Unknown fields are errors."""

    STAND_INS: ClassVar[Mapping[str, Any]] = {}
    """Substitutes for required fields that are wrong, while the rest of a bad file is checked."""
    HINTS: ClassVar[Mapping[str, str]] = {}
    """What to do about unknown fields of a document that is this form."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_origin(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Table):
            count_mistakes()
            return handler(data)
        most = len(cls.__pydantic_fields__)  # `model_fields` of a class takes a tenth of all this
        if len(data) > most:
            count_mistakes(len(data) - most)
        given: dict[str, Any] = data
        if None in data.values():
            given = {key: value for key, value in data.items() if cls._is_given(key, value)}
        try:
            form = handler(given)
        except ValidationError:
            count_mistakes()
            raise
        _keep_beside(form, data)
        return form

    def __hash__(self) -> int:
        """By identity: Pydantic does not copy a field's default that is hashable."""
        return id(self)

    @classmethod
    def _is_given(cls, field: str, value: Any) -> bool:
        """False for `field:` with nothing behind it (all of it commented out, say) where it may be left out."""
        known = cls.model_fields.get(field)
        return value is not None or known is None or known.is_required()

    @property
    def origin(self) -> Table:
        """What it was read from; nothing, of one that stands in for a field that is not written."""
        kept = self.__pydantic_private__
        table: Table = _UNWRITTEN if kept is None else kept[_ORIGIN]
        return table

    @property
    def lost(self) -> set[str]:
        """Fields that were wrong and were taken out before this form was made."""
        return self.origin.lost

    def names_lost(self, field: str) -> set[str]:
        """Return the entries of a mapping field that were taken out."""
        table = self.origin.get(field)
        return table.lost if isinstance(table, Table) else set()

    def any_lost(self, field: str) -> bool:
        """Tell whether anything of a field was taken out: all of it, an item, or something in an item."""
        return field in self.origin.lost or _is_damaged(self.origin.get(field))

    def problem(
        self, field: str, found: str, allowed: str, hint: str = "", at: tuple[Any, ...] = ()
    ) -> Problem:
        """Return a Problem of a field of this form, or of what lies at the end of the keys `at` below it."""
        if field not in self.origin:
            path, line = self.origin.path_of(field), self.origin.line
        else:
            path, line, value = locate(self.origin, (field, *at))
            if at and isinstance(value, Table) and at[-1] in value.lost:
                path, line = value.path_of(at[-1]), value.line_of(at[-1])
        return Problem("", line, path, found, allowed, hint)

    def written_fields(self) -> list[str]:
        """Return the fields that the file gives a value, in the order written."""
        return [field for field, value in self.origin.items() if value is not None]

    def line_of(self, field: str) -> int:
        """Return the line in which a field of this form is written."""
        return self.origin.line_of(field)


def _keep_beside(form: Form, origin: Table) -> None:
    """Where Pydantic keeps private attributes. One that is declared takes a tenth of the time of reading a job."""
    object.__setattr__(form, "__pydantic_private__", {_ORIGIN: origin})


def _is_damaged(value: Any) -> bool:
    if isinstance(value, Rows):
        return value.lost or any(_is_damaged(item) for item in value)
    if isinstance(value, Table):
        return bool(value.lost) or any(_is_damaged(item) for item in value.values())
    return False


AnyForm = TypeVar("AnyForm", bound=Form)


def one_or_many(value: Any) -> Any:
    """Make a list of a single value, so that a field may hold one or several."""
    if isinstance(value, Rows):
        return value
    rows = Rows(value.path if isinstance(value, Table) else "", 0)
    rows.append(value)
    return rows


@dataclass(frozen=True)
class AlsoWritten:
    """A shorter way to write a field: what makes the long form of it, and its JSON schema (None: an item)."""

    lengthen: Callable[[Any], Any]
    schema: dict[str, Any] | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_before_validator_function(self.lengthen, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        long = handler(schema)
        return {"anyOf": [self.schema or long["items"], long]}


Item = TypeVar("Item")
Listed = Annotated[list[Item], AlsoWritten(one_or_many)]
"""A list, or a single value that stands for a list of one."""


def only_document(
    kind: type[Form], documents: list[Document], problems: list[Problem]
) -> Document | None:
    """Return the one document that a file should hold, None where it holds none."""
    if not documents:
        problems.append(empty_file(kind))
        return None
    if len(documents) > 1:
        line = documents[1].line
        problems.append(
            Problem("", line, "document", "a second document", "one document in a file")
        )
    return documents[0]


def empty_file(kind: type[Form]) -> Problem:
    """Return the problem of a file without a document."""
    return Problem("", 1, "document", "an empty file", _allowed_fields(kind))


def refuse(problems: list[Problem], source: str) -> None:
    """Raise BadFields with all problems (the first MAX_PROBLEMS), by line, if there are any."""
    if problems:
        problems.sort(key=lambda problem: problem.line or 0)
        raise BadFields([_told(problem, source) for problem in problems[:MAX_PROBLEMS]])


def _told(problem: Problem, source: str) -> Problem:
    """Return a problem as it is printed: with its source, and without control characters."""
    field, found = shortened(problem.field, 200), shortened(problem.found, 200)
    allowed, hint = shortened(problem.allowed, 1000), shortened(problem.hint, 300)
    return Problem(source, problem.line, field, found, allowed, hint)


def read_form(kind: type[AnyForm], document: Document, problems: list[Problem]) -> AnyForm | None:
    """Return the form of a document. What is wrong goes to problems (without a source), and then the form is
    what is left of the document, None where nothing is.
    """
    data = document.value
    if not isinstance(data, Table):
        found = describe(data)
        problems.append(Problem("", document.line, "document", found, _allowed_fields(kind)))
        return None
    try:
        with few_mistakes():
            return kind.model_validate(data)
    except Flood:
        problems += _first_problems(kind, document)
        return None
    except ValidationError as error:
        errors = error.errors(include_url=False)
    problems += [_problem(kind, data, found) for found in errors[:MAX_PROBLEMS]]
    return _read_rest(kind, data, errors)


def _first_problems(kind: type[Form], document: Document) -> list[Problem]:
    """Return some problems of a document with too many; the document is cut down first."""
    for most in SHORTER_AND_SHORTER:
        cut(document.value, most)
        try:
            with few_mistakes():
                kind.model_validate(document.value)
        except Flood:
            continue
        except ValidationError as error:
            errors = [each for each in error.errors(include_url=False) if each["type"] != "missing"]
            return [_problem(kind, document.value, each) for each in errors[:MAX_PROBLEMS]]
        break
    found = f"more than {MAX_MISTAKES} mistakes"
    return [Problem("", document.line, "document", found, _allowed_fields(kind))]


def _read_rest(kind: type[AnyForm], data: Table, errors: list[Any]) -> AnyForm | None:
    while 0 < len(errors) <= MAX_MISTAKES:
        errors = [error for error in errors if not _stood_in(kind, data, error)]
        paths = {written_path(data, error["loc"]) for error in errors}
        if not _take_out(data, paths):
            return None
        try:
            return kind.model_validate(data)
        except ValidationError as error:
            errors = error.errors(include_url=False)
    return None


def _stood_in(kind: type[Form], data: Table, error: Any) -> bool:
    """Put a stand-in where a required field of the file itself is missing, if there is one for it."""
    field = str(error["loc"][0])
    if error["type"] != "missing" or len(error["loc"]) > 1 or field not in kind.STAND_INS:
        return False
    data[field] = kind.STAND_INS[field]
    data.lost.add(field)
    return True


def _take_out(data: Table, paths: set[tuple[int | str, ...]]) -> bool:
    """Delete what lies at paths, deepest and last first; False when that would be the file itself."""
    if () in paths:
        return False
    for path in sorted(paths, key=lambda path: [(str(type(key)), key) for key in path])[::-1]:
        parent: Any = data
        for key in path[:-1]:
            parent = parent[key]
        if isinstance(parent, Table):
            parent.pop(str(path[-1]), None)
            parent.lost.add(str(path[-1]))
        else:
            _take_out_item(parent, int(path[-1]))
    return True


def _take_out_item(rows: Rows, index: int) -> None:
    del rows[index], rows.lines[index], rows.numbers[index]
    rows.lost = True


def _problem(kind: type[Form], data: Table, error: Any) -> Problem:
    location = error["loc"]
    if error["type"] == "missing":
        return _missing(data, location)
    if error["type"] == "extra_forbidden":
        return _unknown(kind, data, location)
    path, line, _ = locate(data, location)
    context = error.get("ctx", {})
    allowed = context.get("allowed") or _allowed(kind, error)
    found = context.get("found") or describe(error["input"])
    return Problem("", line, path or "document", found, allowed, context.get("hint", ""))


def _allowed(kind: type[Form], error: Any) -> str:
    """Return what Pydantic's own checks allow; fields check themselves (`fields.wrong`)."""
    if error["type"] in {"model_type", "model_attributes_type"}:
        return "a mapping with the fields " + ", ".join(_fields_at(kind, error["loc"]))
    if error["type"] == "too_short":
        return f"a list of at least {error['ctx']['min_length']}"
    if error["type"] == "too_long":
        return f"a list of at most {error['ctx']['max_length']}"
    return {"dict_type": "a mapping", "list_type": "a list"}[error["type"]]


def _missing(data: Table, location: tuple[Any, ...]) -> Problem:
    path, line, _ = locate(data, location[:-1])
    field = f"{path}.{location[-1]}" if path else str(location[-1])
    return Problem("", line, field, "nothing", f"a value; `{location[-1]}` is required")


def _unknown(kind: type[Form], data: Table, location: tuple[Any, ...]) -> Problem:
    path, line, _ = locate(data, location)
    fields = _fields_at(kind, location[:-1])
    hint = _meant(kind, location, fields)
    return Problem("", line, path, "an unknown field", ", ".join(fields), hint)


def _meant(kind: type[Form], location: tuple[Any, ...], fields: list[str]) -> str:
    """Return which field was meant: one that is spelt or called alike, or one of a mapping below."""
    found = str(location[-1])
    if len(location) == 1 and found in kind.HINTS:
        return kind.HINTS[found]
    word = OTHER_WORDS.get(found, found)
    if word in fields:
        return f"Did you mean `{word}`?"
    below = (name for name in fields if word in _fields_at(kind, (*location[:-1], name)))
    near = did_you_mean(found, fields)
    return near or next((f"`{word}` is a field of `{name}`." for name in below), "")


def _fields_at(kind: type[Form], location: tuple[Any, ...]) -> list[str]:
    """Return the fields that the form at a location has."""
    annotation: Any = kind
    for key in location:
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
            continue
        form = _form_in(annotation)
        if form is not None and key in form.model_fields:
            annotation = form.model_fields[key].annotation
    form = _form_in(annotation)
    return list(form.model_fields) if form else []


def _form_in(annotation: Any) -> type[Form] | None:
    """Return the first form that an annotation names, however it is wrapped."""
    if isinstance(annotation, type) and issubclass(annotation, Form):
        return annotation
    for part in get_args(annotation):
        found = _form_in(part)
        if found:
            return found
    return None


def _allowed_fields(kind: type[Form]) -> str:
    return "a mapping with the fields " + ", ".join(kind.model_fields)
