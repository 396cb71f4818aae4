"""Eight virtual nodes under two leaves and a spine: network namespaces joined by veth pairs and bridges, shaped by tc.

Nodes are namespaces; leaves and the spine are bridges in a namespace of their own, so the network of the machine is not
touched. Each link is shaped in both directions by a token bucket (tbf): a node's link to NODE_MBIT, a leaf's up-link to
UPLINK_MBIT. Latency is not shaped (there is no netem on many kernels). All names begin with PREFIX; `remove` ends
whatever runs in such namespaces and deletes them, also what a killed run has left.
"""

import os
import signal
import subprocess
import time
from contextlib import suppress

PREFIX = "gtr-"
SWITCHES = f"{PREFIX}switches"
LEAVES, NODES_OF_LEAF = 2, 4
NODE_MBIT, UPLINK_MBIT = 100, 25
"""Low, so that the links limit a step and not the processors: 2 MiB of gradients take a quarter second in a leaf."""
NETWORK = "10.213.77"
BURST_BYTES = 32 * 1024
"""Some 20 packets; veth hands over packets of up to 64 KiB, which tbf splits into such as fit."""
QUEUE = "100ms"


def node(number: int) -> str:
    """The name of a node, and of its namespace."""
    return f"{PREFIX}n{number}"


def address(number: int) -> str:
    """The address of a node."""
    return f"{NETWORK}.{number + 1}"


def build() -> None:
    """Make the network; what an earlier run has left goes first. Raises CalledProcessError."""
    remove()
    _run("ip", "netns", "add", SWITCHES)
    for bridge in ("spine", *(f"leaf{leaf}" for leaf in range(LEAVES))):
        _run("ip", "-n", SWITCHES, "link", "add", bridge, "type", "bridge")
        _run("ip", "-n", SWITCHES, "link", "set", bridge, "up")
    for leaf in range(LEAVES):
        _join_leaf(leaf)
    for number in range(LEAVES * NODES_OF_LEAF):
        _join_node(number)


def _join_leaf(leaf: int) -> None:
    """The up-link of a leaf, shaped at both ends."""
    up, down = f"up{leaf}", f"down{leaf}"
    _run("ip", "-n", SWITCHES, "link", "add", up, "type", "veth", "peer", "name", down)
    for end, bridge in ((up, f"leaf{leaf}"), (down, "spine")):
        _run("ip", "-n", SWITCHES, "link", "set", end, "master", bridge, "up")
        _shape(SWITCHES, end, UPLINK_MBIT)


def _join_node(number: int) -> None:
    """A node's namespace, with one link to its leaf."""
    name, port = node(number), f"port{number}"
    _run("ip", "netns", "add", name)
    _run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", port, "netns", SWITCHES)
    _run("ip", "-n", name, "addr", "add", f"{address(number)}/24", "dev", "eth0")
    for link in ("lo", "eth0"):
        _run("ip", "-n", name, "link", "set", link, "up")
    _run(
        "ip", "-n", SWITCHES, "link", "set", port, "master", f"leaf{number // NODES_OF_LEAF}", "up"
    )
    _shape(name, "eth0", NODE_MBIT)
    _shape(SWITCHES, port, NODE_MBIT)


def _shape(namespace: str, link: str, mbit: int) -> None:
    words = ("root", "tbf", "rate", f"{mbit}mbit", "burst", str(BURST_BYTES), "latency", QUEUE)
    _run("tc", "-n", namespace, "qdisc", "add", "dev", link, *words)


def remove() -> None:
    """End the processes of all namespaces of this experiment, and delete these."""
    for name in _ours():
        for _ in range(50):
            processes = _pids(name)
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not processes:
                break
            time.sleep(0.1)
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _ours() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    names = (line.split()[0] for line in listed.stdout.splitlines() if line)
    return [name for name in names if name.startswith(PREFIX)]


def _pids(name: str) -> list[int]:
    words = ["ip", "netns", "pids", name]
    found = subprocess.run(words, check=False, capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
