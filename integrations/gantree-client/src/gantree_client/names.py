"""Names of jobs, made from whatever other tools call theirs."""

import re
import uuid

LONGEST = 63
_KEY = 10
_INDEX = 6


def job_name(wish: str, *, is_array: bool = False) -> str:
    """A name like wish that no job had yet, so that the job's id is known before it is submitted.

    A job's id is its name if that is new; those of an array are the name with `-0`, `-1` and so on.
    """
    allowed = re.sub(r"[^A-Za-z0-9._-]+", "-", wish).strip("._-") or "job"
    room = LONGEST - _KEY - 1 - (_INDEX if is_array else 0)
    return f"{allowed[:room].rstrip('._-')}-{uuid.uuid4().hex[:_KEY]}"
