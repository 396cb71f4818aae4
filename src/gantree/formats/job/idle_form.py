"""Fields of `idle` in job.yaml: when the job is stopped as idle, and its lease."""

from gantree.formats.validation.fields import DurationAboveZero
from gantree.formats.validation.forms import Form
from gantree.model.jobs import IdleLimits


class IdleLimitsForm(Form):
    """When the job is stopped as idle, and for how long after each start it is not."""

    stop: DurationAboveZero | None = None
    lease: DurationAboveZero | None = None

    def limits(self) -> IdleLimits:
        """Return what is written."""
        return IdleLimits(self.stop, self.lease)
