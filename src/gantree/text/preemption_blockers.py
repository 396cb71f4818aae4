"""Sentences for the reasons why a job may not preempt another: the same on the command line and on pages."""

PREEMPTION_BLOCKERS = {
    "": "may be preempted",
    "non-preemptible": "is not preemptible",
    "another queue": "the policy preempts no job of another queue",
    "guarantee": "is within its queue's guarantee",
    "policy": "the policy preempts no job",
    "order": "is before it in the queue",
    "priority": "has no lower priority",
    "class": "has a class that its class may not preempt",
    "min_run": "has not run for `min_run` yet",
    "budget": "has used up its eviction budget",
    "cannot say": "unknown",
}
"""By the value of `because` in the answer of `why`; other values are printed as they are."""
