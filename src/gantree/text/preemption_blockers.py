"""What forbids to stop a job for another, in words; the same on the command line and on a page."""

OBJECTIONS = {
    "": "may be stopped for it",
    "non-preemptible": "is never preempted",
    "another queue": "policy stops nobody of another queue",
    "guarantee": "is within its queue's guarantee",
    "policy": "policy stops nobody",
    "order": "goes before it",
    "priority": "of no lower priority",
    "class": "of a class that its class may not stop",
    "min_run": "has not run for the minimum time yet",
    "budget": "was preempted as often as a day allows",
    "cannot say": "nobody knows",
}
"""What forbids to stop a job, in words; other reasons are printed as they are."""
