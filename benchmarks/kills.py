"""Is an acknowledged job ever lost, or taken twice? A daemon under load is killed with SIGKILL, again and again.

Client processes hand in jobs without a pause, one after the other, each under an idempotency key and a name of its own.
Whoever gets no answer tries again with the key until there is one; now and then a client asks again for what was
acknowledged long ago, and must be told the same. Meanwhile the daemon is killed at a random moment, some of them before
it is ready, and started again at once. In the end every acknowledged job must be there under the id that its client was
told, no name may have been taken twice, and `gantree journal verify` must find nothing.

    python benchmarks/kills.py --kills 200 [--database postgres] [--clients 8] [--seed 1]

Exits 1 where anything is amiss.
"""

import argparse
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from gantree.api.client.client import Client
from loading import CLUSTER, TAKEN, Daemon, database, drive, job, request

LONGEST_LIFE_S = 1.5
"""A daemon that is ready is killed within so long."""
KILLED_EARLY = 0.1
"""Of so many starts the daemon is killed before it is ready."""
ASKED_AGAIN = 0.05
CREATED = 201
RETRY_S = 0.02


def client(state: Path, number: int, seed: int, over: Event, told_to: Path) -> None:
    """One client until it is told that it is over: a line of JSON for each acknowledgement, on disk when it is had."""
    chance = random.Random(f"{seed}/{number}")
    acknowledged: dict[str, list[str]] = {}
    with told_to.open("w") as file:
        while not over.is_set():
            again = acknowledged and chance.random() < ASKED_AGAIN
            name = chance.choice([*acknowledged]) if again else f"c{number}-{len(acknowledged)}"
            ids = hand_in(state, name, over)
            if ids is None:
                return
            if acknowledged.setdefault(name, ids) != ids:
                raise SystemExit(f"{name} was acknowledged as {acknowledged[name]}, then as {ids}")
            file.write(json.dumps([name, ids]) + "\n")
            file.flush()


def hand_in(state: Path, name: str, over: Event) -> list[str] | None:
    """The ids that a job was taken under, however often that has to be asked; None where nobody will answer."""
    content = request(
        "POST",
        "/v1/jobs",
        {"jobs": [job(name)], "base_dir": "/tmp"},
        [f"Idempotency-Key: {name}"],
    )
    while True:
        try:
            told = drive(state, [content], 1)
        except OSError:
            told = []
        if told and told[0].status == CREATED:
            return [each["job"] for each in json.loads(told[0].body)["jobs"]]
        if told and told[0].status < 500:
            raise SystemExit(f"{name} was refused: {told[0].body.decode()}")
        if over.is_set():
            return None
        time.sleep(RETRY_S)


def kill(daemon: Daemon, kills: int, chance: random.Random) -> list[float]:
    """Kill the daemon and start it again so many times; give how long it took to be ready."""
    ready_s = []
    for number in range(kills):
        if chance.random() < KILLED_EARLY:
            daemon.spawn()
            time.sleep(chance.uniform(0.0, 2.0))
        else:
            ready_s.append(daemon.start())
            time.sleep(chance.uniform(0.0, LONGEST_LIFE_S))
        daemon.kill()
        if number % 20 == 19:
            print(f"{number + 1} kills", file=sys.stderr)
    ready_s.append(daemon.start())
    return ready_s


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Kill under load, then look at what is there."""
    context = multiprocessing.get_context("spawn")
    over, files = context.Event(), [home / f"client-{number}" for number in range(options.clients)]
    with database(options.database, home) as named:
        daemon = Daemon(home, CLUSTER + TAKEN, named)
        clients = [
            context.Process(target=client, args=(daemon.state, number, options.seed, over, file))
            for number, file in enumerate(files)
        ]
        for each in clients:
            each.start()
        try:
            ready_s = kill(daemon, options.kills, random.Random(options.seed))
            time.sleep(1.0)
            over.set()
            for each in clients:
                each.join()
            there = [row["job"] for row in Client(daemon.state).jobs()]
        finally:
            over.set()
            daemon.stop()
        verified = verify(daemon.state, named)
    return {
        "database": options.database,
        "kills": options.kills,
        "ready_s": round(sum(ready_s) / len(ready_s), 2),
        "clients_failed": sum(each.exitcode != 0 for each in clients),
        **compared(files, there),
        "verify": verified,
    }


def compared(files: list[Path], there: list[str]) -> dict[str, int]:
    """What was acknowledged against what is there. A job's id is its name, unless that was taken before."""
    told = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    ids = dict(told)
    acknowledged = {each for found in ids.values() for each in found}
    return {
        "acknowledgements": len(told),
        "jobs_acknowledged": len(acknowledged),
        "jobs_there": len(there),
        "lost": len(acknowledged - set(there)),
        "taken_twice": sum(found != [name] for name, found in ids.items())
        + len([each for each in there if each.count("-") > 1]),
        "ids_given_twice": len(there) - len(set(there)),
    }


def verify(state: Path, named: list[str]) -> str:
    """What `gantree journal verify` says."""
    where = named or ["--state", str(state)]
    command = [str(Path(sys.executable).with_name("gantree")), "journal", "verify", *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "clean" if done.returncode == 0 else done.stdout + done.stderr


def main() -> None:
    """Print what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8, help="processes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        home = Path(directory)
        home.chmod(0o711)  # PostgreSQL runs as another user where we are root
        found = measure(options, home)
    print(json.dumps(found, indent=2))
    amiss = [found[key] for key in ("lost", "taken_twice", "ids_given_twice", "clients_failed")]
    raise SystemExit(any(amiss) or found["verify"] != "clean")


if __name__ == "__main__":
    main()
