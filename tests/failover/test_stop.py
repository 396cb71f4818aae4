"""A daemon that is told to stop stops, whatever it waits for."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.fleet import Cable
from support.postgres import Server

UP = """
import sys
from pathlib import Path
from gantree.api.server import daemon
from gantree.api.server.settings import Settings
daemon.STOP_WITHIN_S = 0.5
site = "name: one\\ntiers: [node]\\nmachines: {m: {gpus: 1, gpu: L4, cpus: 8, memory_GiB: 8}}\\n"
daemon.run_daemon(Settings(Path(sys.argv[1]), site + "nodes: [{names: n0, machine: m}]", database=sys.argv[2]))
"""


def test_a_daemon_ends_when_it_is_told_to_also_while_the_database_stands_still(
    postgres: Server, tmp_path: Path
) -> None:
    cable = Cable(postgres.place, tmp_path / "cable")
    with postgres.database() as url:
        through = url.replace(str(postgres.place), str(cable.place))
        with subprocess.Popen(
            [sys.executable, "-c", UP, str(tmp_path / "state"), through],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as daemon:  # fmt: skip
            assert daemon.stdout is not None
            try:
                assert " ready: " in daemon.stdout.readline()
                cable.cut()
                os.kill(daemon.pid, signal.SIGTERM)
                _, said = daemon.communicate(timeout=300)
            finally:
                daemon.kill()
        cable.close()
    assert "this process ends now" in said
    assert daemon.returncode == 1
