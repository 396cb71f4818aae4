"""An example of each command, the last line of its help. A test checks them against the options of the commands."""

from collections.abc import Mapping
from typing import Any

EXAMPLES: Mapping[str, str] = {
    "up": "gantree up --cluster cluster.yaml --listen 127.0.0.1:8080",
    "kubernetes schedule": "gantree kubernetes schedule --policy policy.yaml",
    "kubernetes preflight": "gantree kubernetes preflight --node-selector pool=gpu",
    "kubernetes shadow": "gantree kubernetes shadow --state shadow",
    "kubernetes snapshot": "gantree kubernetes snapshot fleet",
    "kubernetes webhook": "gantree kubernetes webhook --tls-cert tls.pem --env NCCL_SOCKET_IFNAME=eth0",
    "submit": "gantree submit train.yaml --queue research/nlp",
    "run": "gantree run -n 2 --gpus 8 -- python train.py",
    "jobs": "gantree jobs --queue research --phase running --watch",
    "why": "gantree why llama",
    "when": "gantree when llama",
    "queues": "gantree queues",
    "usage": "gantree usage --by queue",
    "history jobs": "gantree history jobs --user ann --since 7d",
    "logs": "gantree logs -f -n 20 llama",
    "attach": "gantree attach llama --rank 3 -- nvidia-smi",
    "record": "gantree record llama --attempt 1",
    "rerun": "gantree rerun llama",
    "cancel": "gantree cancel llama sweep-0",
    "hold": "gantree hold llama",
    "release": "gantree release llama",
    "suspend": "gantree suspend llama",
    "resume": "gantree resume llama",
    "scale": "gantree scale llama --members 4",
    "reprioritise": "gantree reprioritise llama --priority production",
    "nodes": "gantree nodes",
    "cordon": "gantree cordon n7 --reason 'a fan is broken'",
    "uncordon": "gantree uncordon n7",
    "drain": "gantree drain n7 --deadline 30m",
    "label": "gantree label n7 pool=a old-",
    "policy show": "gantree policy show",
    "policy history": "gantree policy history",
    "policy check": "gantree policy check policy.yaml",
    "policy apply": "gantree policy apply policy.yaml",
    "policy rollback": "gantree policy rollback 2",
    "access check": "gantree access check access.yaml",
    "token create": "gantree token create --user ann --expires 30d",
    "token list": "gantree token list",
    "token revoke": "gantree token revoke t4f2",
    "audit": "gantree audit --user ann",
    "defragment": "gantree defragment llama",
    "place": "gantree place cluster.yaml train.yaml",
    "what-if": "gantree what-if llama --relax spine --members 4",
    "ranks": "gantree ranks cluster.yaml train.yaml --out ranks",
    "cost": "gantree cost cluster.yaml train.yaml",
    "fit": "gantree fit cluster.yaml train.yaml",
    "topo show": "gantree topo cluster.yaml",
    "topo page": "gantree topo page cluster.yaml -o cluster.html",
    "topo graph": "gantree topo graph cluster.yaml --format dot",
    "topo import": "gantree topo import nvidia-smi matrix.txt -o machine.yaml",
    "topo catalog": "gantree topo catalog dgx-h100",
    "topo measure": "gantree topo measure -o calibration.yaml",
    "simulate": "gantree simulate --cluster cluster.yaml --trace trace.csv --out results",
    "journal verify": "gantree journal verify",
    "journal export": "gantree journal export",
    "journal backup": "gantree journal backup journal.bak",
    "journal compact": "gantree journal compact",
    "journal correct-clock": "gantree journal correct-clock",
    "help": "gantree help troubleshooting",
    "bench decisions": "gantree bench decisions --gpus 16384",
    "bench gang": "gantree bench gang --members 1024 --required pod",
    "bench fill": "gantree bench fill",
    "bench refusal": "gantree bench refusal",
    "bench tas": "gantree bench tas",
    "bench queue": "gantree bench queue",
    "bench reclaim": "gantree bench reclaim",
    "bench memory": "gantree bench memory",
    "bench openb": "gantree bench openb --nodes nodes.csv --pods pods.csv --order order.csv --tiebreak ranks.csv",
}


def add_example(command: Any, path: str) -> None:
    """Let the help of a command, and of those below it, end with its example; path is without the program's name."""
    if path in EXAMPLES:
        own = (command.epilog, "") if command.epilog else ()
        command.epilog = "\n".join([*own, f"Example: {EXAMPLES[path]}"])
    for name, below in getattr(command, "commands", {}).items():
        add_example(below, f"{path} {name}")
