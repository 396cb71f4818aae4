"""Why a job waits and when it starts, in numbers and words."""
