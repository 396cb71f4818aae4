"""What reading the exporters of a large site costs a daemon, and how soon a link at half rate is on its map.

    PYTHONPATH=src python benchmarks/scraping.py [--nodes 1250] [--seconds 120] [--silent 0]

A process of its own plays the DCGM exporters of all nodes, on loopback: 8 GPUs a node with 25 metrics each, of which
counters and gauges change at every read. A real daemon (`gantree up --cluster --gpu-metrics`) reads them every 15
seconds. Its CPU and memory are those that the kernel counts for its process, after its start; the exporters' are not in
it. Then the PCIe port of one GPU falls to half of its lanes, and the time is taken until `GET /v1/links` has it.

--silent: so many nodes accept a connection and never answer, as machines that hang do.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request, urlopen

from gantree.api.client.client import Client

GPUS = 8
SILENT_S = 30.0
WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH"
METRICS = (
    "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    WIDTH, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
)  # fmt: skip
"""The default counters of NVIDIA's exporter, and those of links."""
CONSTANT = {
    WIDTH: 16, "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16, "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 0, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0,
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 0, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 0,
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 0,
}  # fmt: skip
CLUSTER = """
name: scraped
tiers: [leaf, node]
nodes:
"""


class Exporter(BaseHTTPRequestHandler):
    """The exporters of all nodes, told apart by the path; PUT /NODE/GPU halves the width of a GPU's port."""

    protocol_version = "HTTP/1.1"
    half: tuple[str, int] | None = None
    silent = 0
    reads = 0

    def do_GET(self) -> None:
        """The metrics of one node."""
        type(self).reads += 1
        if int(self.path.strip("/n")) < self.silent:
            time.sleep(SILENT_S)
            return
        text = exported(self.path.strip("/"), self.reads, self.half).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_PUT(self) -> None:
        """Plant a link at half rate."""
        node, _, gpu = self.path.strip("/").partition("/")
        type(self).half = node, int(gpu)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Accepts as many connections as come at once."""

    request_queue_size = 1024


def exported(node: str, read: int, half: tuple[str, int] | None) -> str:
    """What an exporter says at its so many-th read."""
    lines = list[str]()
    for metric in METRICS:
        lines += [f"# HELP {metric} As NVIDIA's exporter describes it.", f"# TYPE {metric} gauge"]
        for gpu in range(GPUS):
            value = CONSTANT.get(metric, 1000 + (read * 7 + gpu) % 500)
            value = 8 if metric == WIDTH and half == (node, gpu) else value
            lines.append(
                f'{metric}{{gpu="{gpu}",UUID="GPU-{node}-{gpu:04d}-4c1f-8a86-9a5bd3c1a0b{gpu}",'
                f'pci_bus_id="00000000:{gpu + 16:02X}:00.0",device="nvidia{gpu}",'
                f'modelName="NVIDIA H100 80GB HBM3",Hostname="{node}",DCGM_FI_DRIVER_VERSION="570.133.20"}} {value}'
            )
    return "\n".join(lines) + "\n"


def serve(silent: int) -> None:
    """Play the exporters until the process is ended; print the port."""
    Exporter.silent = silent
    server = Server(("127.0.0.1", 0), Exporter)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def cluster_file(nodes: int) -> str:
    """A site of DGX H100 in leaves of 32."""
    rows = (
        f'  - {{names: "n[{first}-{min(first + 32, nodes) - 1}]", machine: dgx-h100, at: {{leaf: l{first // 32}}}}}'
        for first in range(0, nodes, 32)
    )
    return CLUSTER + "\n".join(rows) + "\n"


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_MB(pid: int, field: str) -> float:
    """VmRSS or VmHWM of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6


def figures(nodes: int, seconds: float, silent: int, state: Path) -> dict[str, float]:
    """Run exporters and daemon, and measure the daemon."""
    (state / "site.yaml").write_text(cluster_file(nodes))
    exporters = subprocess.Popen(
        [sys.executable, __file__, "--serve", "--silent", str(silent)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert exporters.stdout is not None
    url = f"http://127.0.0.1:{int(exporters.stdout.readline())}"
    daemon = subprocess.Popen(
        [sys.executable, "-m", "gantree", "up", "--state", str(state / "state"), "--cluster",
         str(state / "site.yaml"), "--gpu-metrics", url + "/{node}"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        client = started(state / "state")
        time.sleep(20)
        before, since = cpu_s(daemon.pid), time.monotonic()
        time.sleep(seconds)
        took_s = time.monotonic() - since
        cores = (cpu_s(daemon.pid) - before) / took_s
        return {
            "cores": round(cores, 3),
            "rss_MB": round(memory_MB(daemon.pid, "VmRSS")),
            "peak_MB": round(memory_MB(daemon.pid, "VmHWM")),
            "on_the_map_s": round(planted(client, url, f"n{nodes // 2}", 3), 1),
        }
    finally:
        for process in (daemon, exporters):
            process.terminate()
            process.wait()


def started(state: Path) -> Client:
    """A client of the daemon, once it answers."""
    while True:
        try:
            client = Client(state)
            client.links()
        except Exception:
            time.sleep(0.2)
        else:
            return client


def planted(client: Client, url: str, node: str, gpu: int) -> float:
    """Seconds from the loss of half of the lanes until it is listed."""
    assert client.links() == []
    urlopen(Request(f"{url}/{node}/{gpu}", method="PUT")).close()
    since = time.monotonic()
    while not client.links():
        time.sleep(0.1)
    (row,) = client.links()
    assert (row["link"], row["health"]) == (f"gpu-pcie:{node}/{gpu}", 0.5)
    return time.monotonic() - since


def main() -> None:
    """Print the figures as JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=1250)
    options.add_argument("--seconds", type=float, default=120.0)
    options.add_argument("--silent", type=int, default=0)
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.serve:
        serve(chosen.silent)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(figures(chosen.nodes, chosen.seconds, chosen.silent, Path(folder))))


if __name__ == "__main__":
    main()
