"""A daemon that is told to stop stops, whatever it waits for."""

from pathlib import Path

from support.daemon import Program
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
        with Program("-c", UP, str(tmp_path / "state"), through) as daemon:
            daemon.says(" ready: ")
            cable.cut()
            assert daemon.stop() == 1
            assert "this process ends now" in daemon.said.read()
        cable.close()
