"""Exporters of GPU activity as a daemon reads them over HTTP: one that is right, the same again, and one of garbage.

with serving(GpuExporters({"n0": 4, "n1": 4})) as exporters:
    daemon = Daemon(state, CLUSTER, gpu_metrics=exporters.urls)
"""

import json
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

FIGURES = """DCGM_FI_DEV_GPU_TEMP{labels} 40
DCGM_FI_DEV_GPU_UTIL{labels} 100
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{labels} {active}
DCGM_FI_PROF_DRAM_ACTIVE{labels} {active}
"""
GARBAGE = (
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",Host',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",Hostname="NODE"} NaN\n',
    'DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",Hostname="NODE"} -7\n',
    'DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="NODE"} 40\n',
    'DCGM_FI_DEV_GPU_TEMP{gpu="99",Hostname="NODE"} 40\nDCGM_FI_DEV_GPU_UTIL{gpu="-1",Hostname="NODE"} +Inf\n',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",Hostname="elsewhere"} 1\nDCGM_FI_PROF_DRAM_ACTIVE{gpu="0"} 1\n',
    "<html>502 Bad Gateway</html>\n",
    "\x00\xff\n",
    "",
)
"""What the third exporter says, one after the other. Of GPUs that exist none of it says that they compute or do not."""


def told(node: str, gpu: int, active: float) -> str:
    """What an exporter says of a GPU whose tensor cores and memory are active for that share of the time."""
    return FIGURES.format(labels=f'{{gpu="{gpu}",Hostname={json.dumps(node)}}}', active=active)


class GpuExporters(ThreadingHTTPServer):
    """Nodes, each with so many GPUs. idle nodes compute nothing, a silent exporter answers nothing."""

    def __init__(self, gpus_of_node: Mapping[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.gpus_of_node = gpus_of_node
        self.idle: frozenset[str] = frozenset()
        self.is_silent = False
        self.asked = count()

    @property
    def urls(self) -> str:
        """Of all three, with spaces between them."""
        host = f"http://127.0.0.1:{self.server_address[1]}"
        return " ".join(f"{host}/{path}" for path in ("metrics", "again", "garbage"))

    def figures(self) -> Iterator[str]:
        """What is right."""
        for node, gpus in self.gpus_of_node.items():
            for gpu in range(gpus):
                yield told(node, gpu, 0.0 if node in self.idle else 0.7)

    def garbage(self) -> str:
        """What is wrong, of one node after the other."""
        number = next(self.asked)
        nodes = [*self.gpus_of_node]
        told = GARBAGE[number % len(GARBAGE)]
        return told.replace("NODE", nodes[number // len(GARBAGE) % len(nodes)])


class _Handler(BaseHTTPRequestHandler):
    server: GpuExporters

    def do_GET(self) -> None:
        if self.server.is_silent:
            self.send_error(503)
            return
        is_garbage = self.path == "/garbage"
        text = self.server.garbage() if is_garbage else "".join(self.server.figures())
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode("latin-1"))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
