"""Fields of `check`, in job.yaml and in a queue of policy.yaml: what is checked before the command starts."""

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.validation.fields import DURATION_SCHEMA, YesNo, duration, wrong
from gantree.formats.validation.forms import Form
from gantree.model.jobs import Check

SHORTEST_S, LONGEST_S = 1.0, 3600.0


def _time(value: Any) -> float:
    found = duration(value)
    if not SHORTEST_S <= found <= LONGEST_S:
        raise wrong("a time from 1s to 1h, such as 60s")
    return found


CheckTime = Annotated[float, PlainValidator(_time), WithJsonSchema(DURATION_SCHEMA)]


class CheckForm(Form):
    """A check of the gang's links by its own collectives."""

    collective: CheckTime
    required: YesNo = False

    def check(self) -> Check:
        """Return what is written."""
        return Check(self.collective, self.required)
