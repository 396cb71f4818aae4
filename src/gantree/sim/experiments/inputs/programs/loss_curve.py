"""Data-parallel training in plain Python: a linear model by gradient descent, with checkpoint and resume.

Every process has its part of each batch. Gradients are added up by rank 0 in the order of ranks, so that the same steps
give the same bits in every run. Losses are printed in full: `step 7 loss 0x1.8p-3` is a float in hexadecimal. It runs
under gantree on any machine, without GPUs and without packages.
"""

import argparse
import json
import os
import socket
import struct
import time
from pathlib import Path
from random import Random

from gantree import training

WEIGHTS, BATCH, RATE = 16, 8, 0.01


def gradient(weights: list[float], step: int, rank: int) -> list[float]:
    """Gradient of the mean squared error of this rank's part of a batch, and after it the error itself."""
    draws = Random(f"{step}/{rank}")  # noqa: S311 - made-up data
    total = [0.0] * (WEIGHTS + 1)
    for _ in range(BATCH):
        x = [draws.gauss(0, 1) for _ in weights]
        wanted = sum(value * (number % 3 - 1) for number, value in enumerate(x))
        error = sum(w * value for w, value in zip(weights, x, strict=True)) - wanted
        for number, value in enumerate(x):
            total[number] += 2 * error * value / BATCH
        total[-1] += error * error / BATCH
    return total


def joined(rank: int, ranks: int) -> list[socket.socket]:
    """On rank 0 the other ranks in their order, on others rank 0."""
    address = (os.environ.get("MASTER_ADDR", "localhost"), int(os.environ.get("MASTER_PORT", "0")))
    if ranks == 1:
        return []
    if rank:
        return [_connected(address, rank)]
    peers: dict[int, socket.socket] = {}
    with socket.create_server(address) as server:
        while len(peers) < ranks - 1:
            peer, _ = server.accept()
            peers[int(_receive(peer, 1)[0])] = peer
    return [peers[number] for number in range(1, ranks)]


def _connected(address: tuple[str, int], rank: int) -> socket.socket:
    while True:
        try:
            peer = socket.create_connection(address)
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            _send(peer, [float(rank)])
            return peer


def _send(peer: socket.socket, values: list[float]) -> None:
    peer.sendall(struct.pack(f"{len(values)}d", *values))


def _receive(peer: socket.socket, count: int) -> list[float]:
    got = b""
    while len(got) < 8 * count:
        more = peer.recv(8 * count - len(got))
        if not more:
            raise ConnectionError("another process of this gang is gone")
        got += more
    return list(struct.unpack(f"{count}d", got))


def averaged(peers: list[socket.socket], rank: int, own: list[float]) -> list[float]:
    """The mean over all ranks, the same bits on each."""
    if rank:
        _send(peers[0], own)
        return _receive(peers[0], len(own))
    total = own
    for peer in peers:
        total = [a + b for a, b in zip(total, _receive(peer, len(own)), strict=True)]
    mean = [value / (len(peers) + 1) for value in total]
    for peer in peers:
        _send(peer, mean)
    return mean


def save(path: Path, step: int, weights: list[float]) -> None:
    """Write a checkpoint, all of it or nothing."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps([step, [weight.hex() for weight in weights]]))
    new.replace(path)


def load(path: Path) -> tuple[int, list[float]]:
    """The step and the weights of a checkpoint; step 0 and zeros where there is none."""
    if not path.exists():
        return 0, [0.0] * WEIGHTS
    step, weights = json.loads(path.read_text())
    return step, [float.fromhex(weight) for weight in weights]


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201 - its output is its result


def main() -> None:
    """Train; every rank reads the checkpoint, rank 0 writes it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--slow-from", type=int, help="a step from which each takes a second")
    parser.add_argument("--slow-until", type=Path, help="a file that ends this once it is there")
    options = parser.parse_args()
    rank, ranks = training.rank(), training.world_size()
    peers = joined(rank, ranks)
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "checkpoint.json"
    done, weights = load(path)
    if rank == 0:
        say(f"begins after step {done} on node {os.environ.get('GANTREE_NODE')}")
    for step in range(done + 1, options.steps + 1):
        *change, loss = averaged(peers, rank, gradient(weights, step, rank))
        weights = [weight - RATE * each for weight, each in zip(weights, change, strict=True)]
        if rank == 0:
            say(f"step {step} loss {loss.hex()}")
        asked = training.should_checkpoint(step)
        if asked or step % options.every == 0:
            if rank == 0:
                save(path, step, weights)
            averaged(peers, rank, [0.0])  # nobody goes on before it is written
            training.saved(step)
        slow = options.slow_from is not None and step >= options.slow_from
        time.sleep(1.0 if slow and not options.slow_until.exists() else options.step_s)


if __name__ == "__main__":
    main()
