"""`gantree kubernetes`: a scheduler of a Kubernetes cluster, and what an operator asks before, beside and without it.

`gantree kubernetes` alone is the daemon; that is the subcommand `schedule`, which is put in where no other is named.
"""

from typing import Any, ClassVar

from gantree.cli.lazy import LazyGroup, Listed
from gantree.cli.options import new_app

SCHEDULE = "schedule"


class KubernetesCommands(LazyGroup):
    """A group whose first word may also be an option of `schedule`."""

    LISTED: ClassVar = {
        SCHEDULE: Listed(
            "gantree.cli.kubernetes.schedule:kubernetes",
            "Schedule the pods that name gantree as their scheduler (the default).",
        ),
        "preflight": Listed(
            "gantree.cli.kubernetes.preflight:preflight",
            "Check a cluster for what gangs on GPUs and RDMA need, and say what to fix.",
        ),
        "shadow": Listed(
            "gantree.cli.kubernetes.shadow:shadow",
            "Print what a dry run would have done, beside what was done.",
        ),
        "snapshot": Listed(
            "gantree.cli.kubernetes.snapshot:snapshot",
            "Write a cluster and its gangs down as files that the simulator reads.",
        ),
        "webhook": Listed(
            "gantree.cli.kubernetes.webhook:webhook",
            "Answer an API server that asks what to add to pods when they are made.",
        ),
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `schedule` before everything that is neither a subcommand nor a call for help."""
        named = bool(args) and (args[0] in self.LISTED or args[0] == "--help")
        return super().parse_args(ctx, args if named else [SCHEDULE, *args])


app = new_app(cls=KubernetesCommands)


@app.callback()
def kubernetes() -> None:
    """Run as a scheduler of a Kubernetes cluster.

    gantree kubernetes alone is the scheduler, which is the command schedule; its options are told by gantree
    kubernetes schedule --help.
    """
