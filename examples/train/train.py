"""Data-parallel training in NumPy: a small network on made-up data, with checkpoint and resume.

Every process holds the whole network and works on its own part of each batch. After each step the processes
average their gradients through rank 0, which adds them up in rank order: the result has the same bits in
every run, resumed or not. Run it alone (`python train.py`), or as a gang with `train.yaml`.
"""

import argparse
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before NumPy reads them: 16 processes may share 2 cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # after the variables above
from numpy.typing import NDArray

from gantree import training

Vector = NDArray[np.float64]

INPUTS, HIDDEN, BATCH = 8, 32, 64
LEARNING_RATE = 0.05
CONNECT_TIMEOUT_S = 60.0


class Star:
    """All processes connected to rank 0 at MASTER_ADDR:MASTER_PORT."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank = rank
        self._peers: list[socket.socket] = []
        if world_size == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            self._peers = _accept_all(address, world_size)
        else:
            self._peers = [_connect(address, rank)]

    def mean(self, own: Vector) -> Vector:
        """The average over all processes, the same bits on each. Every process must call it."""
        if not self._peers:
            return own
        if self._rank != 0:
            self._peers[0].sendall(own.tobytes())
            return _receive(self._peers[0], own.size)
        total = own.copy()
        for peer in self._peers:
            total += _receive(peer, own.size)
        return self.broadcast(total / (len(self._peers) + 1))

    def broadcast(self, own: Vector) -> Vector:
        """What rank 0 has. Every process must call it, with a vector of the same size."""
        if self._rank != 0:
            return _receive(self._peers[0], own.size)
        for peer in self._peers:
            peer.sendall(own.tobytes())
        return own


def _accept_all(address: tuple[str, int], world_size: int) -> list[socket.socket]:
    """Connections of the ranks 1, 2, ... in this order, whoever came first."""
    of_rank: dict[int, socket.socket] = {}
    with socket.create_server(address, backlog=world_size) as server:
        server.settimeout(CONNECT_TIMEOUT_S)
        while len(of_rank) < world_size - 1:
            peer, _ = server.accept()
            _send_small_packets_at_once(peer)
            of_rank[int(_receive(peer, 1)[0])] = peer
    return [of_rank[rank] for rank in range(1, world_size)]


def _connect(address: tuple[str, int], rank: int) -> socket.socket:
    """Keep trying until rank 0 listens."""
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        try:
            peer = socket.create_connection(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            _send_small_packets_at_once(peer)
            peer.sendall(np.array([float(rank)]).tobytes())
            return peer


def _send_small_packets_at_once(peer: socket.socket) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _receive(peer: socket.socket, size: int) -> Vector:
    buffer = np.empty(size)
    view = buffer.data.cast("B")
    while view:
        count = peer.recv_into(view)
        if count == 0:
            raise ConnectionError("another process of this gang is gone")
        view = view[count:]
    return buffer


@dataclass
class Network:
    """One hidden layer; all parameters in one vector, so that they travel as one."""

    parameters: Vector

    @classmethod
    def fresh(cls, seed: int) -> "Network":
        size = INPUTS * HIDDEN + HIDDEN + HIDDEN + 1
        return cls(np.random.default_rng(seed).normal(0.0, 0.3, size))

    def loss_and_gradient(self, x: Vector, y: Vector) -> tuple[float, Vector]:
        """Mean squared error over a batch, and its gradient by every parameter."""
        w1, b1, w2, b2 = np.split(self.parameters, np.cumsum([INPUTS * HIDDEN, HIDDEN, HIDDEN]))
        w1 = w1.reshape(INPUTS, HIDDEN)
        hidden = np.tanh(x @ w1 + b1)
        error = hidden @ w2 + b2[0] - y
        by_output = 2.0 * error / len(y)
        by_hidden = np.outer(by_output, w2) * (1.0 - hidden**2)
        parts = (x.T @ by_hidden, by_hidden.sum(axis=0), hidden.T @ by_output, by_output.sum())
        return float(np.mean(error**2)), np.concatenate([np.ravel(part) for part in parts])


def batch(seed: int, step: int, rank: int) -> tuple[Vector, Vector]:
    """This rank's part of a step's batch; depends on nothing else, so a resumed run sees the same."""
    x = np.random.default_rng((seed, step, rank)).normal(size=(BATCH, INPUTS))
    return x, np.sin(x.sum(axis=1))


def save(path: Path, step: int, network: Network) -> None:
    """The whole file or none, on disk when this returns."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        np.savez(file, step=np.array(step), parameters=network.parameters)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def load(path: Path) -> tuple[int, Network] | None:
    """Last finished step and the network after it, or None where nothing was saved."""
    if not path.exists():
        return None
    with np.load(path) as file:
        return int(file["step"]), Network(file["parameters"])


def restore(star: Star, path: Path, seed: int) -> tuple[int, Network]:
    """Where to go on: rank 0 reads, the others get it from rank 0, so all go on from the same step."""
    restored = load(path) if training.rank() == 0 else None
    step, network = restored or (0, Network.fresh(seed))
    together = star.broadcast(np.concatenate([[float(step)], network.parameters]))
    step = int(together[0])
    if training.rank() == 0 and restored is not None:
        print(f"resumed from step {step}", flush=True)
    return step, Network(together[1:])


def train(options: argparse.Namespace) -> None:
    """Steps are counted from 1; a checkpoint of step n holds the network after n steps."""
    rank = training.rank()
    path = (training.checkpoint_path() or Path(options.checkpoint_dir)) / "checkpoint.npz"
    if rank == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
    star = Star(rank, training.world_size())
    done, network = restore(star, path, options.seed)
    for step in range(done + 1, options.steps + 1):
        began_at = time.monotonic()
        loss, gradient = network.loss_and_gradient(*batch(options.seed, step, rank))
        averaged = star.mean(np.append(gradient, loss))
        network.parameters = network.parameters - LEARNING_RATE * averaged[:-1]
        time.sleep(max(0.0, options.step_s - (time.monotonic() - began_at)))
        if rank == 0:
            print(f"step {step} loss {averaged[-1]:.4f}", flush=True)
        # Both halves of this "or" are the same on all ranks, and the first is asked in every step.
        if training.should_checkpoint(step) or _is_due(step, options):
            if rank == 0:
                save(path, step, network)
                print(f"saved step {step}", flush=True)
            training.saved(step)
    if rank == 0:
        print(f"finished {options.steps} steps", flush=True)


def _is_due(step: int, options: argparse.Namespace) -> bool:
    every: int = options.checkpoint_every
    return step == options.steps or (every > 0 and step % every == 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument(
        "--step-s", type=float, default=0.0, help="make a step last at least this long"
    )
    parser.add_argument(
        "--checkpoint-every", type=int, default=0, metavar="STEPS", help="0: only when asked to"
    )
    parser.add_argument(
        "--checkpoint-dir", default="checkpoints", help="where the job declares no path"
    )
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
