"""`gantree kubernetes`: the scheduler of a Kubernetes cluster, and tools for its operator.

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
            "Run the scheduler (the default command).",
        ),
        "preflight": Listed(
            "gantree.cli.kubernetes.preflight:preflight",
            "Check whether a cluster is ready for gangs on GPUs and RDMA, and print fixes.",
        ),
        "release": Listed(
            "gantree.cli.kubernetes.release:release",
            "Give namespaces back to the scheduler that they had, with their waiting pods.",
        ),
        "shadow": Listed(
            "gantree.cli.kubernetes.shadow:shadow",
            "Print the report of a dry run: what the scheduler did, and what gantree would do.",
        ),
        "snapshot": Listed(
            "gantree.cli.kubernetes.snapshot:snapshot",
            "Write a cluster and its gangs to files for the simulator.",
        ),
        "webhook": Listed(
            "gantree.cli.kubernetes.webhook:webhook",
            "Serve a mutating admission webhook that adds variables and RDMA devices to pods.",
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

    gantree kubernetes without a command runs the scheduler. gantree kubernetes schedule --help lists its
    options.
    """
