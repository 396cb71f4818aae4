"""A real daemon in a process of its own, for tests: started, killed, stopped, started again.

    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        daemon.client.submit("name: a\\n...")
        daemon.kill()
        daemon.start()

At the end of the block every job is cancelled and waited for, so that no process outlives the test.
"""

import os
import re
import signal
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from gantree.api.client.client import Client
from gantree.api.server.listeners import listen_of
from gantree.api.server.settings import Settings
from gantree.control.requests.waiting_limits import DEFAULT_WAITING_LIMITS, WaitingLimits
from gantree.formats import read_policy
from gantree.model.errors import Conflict, GantreeError
from support.nursery import PLACE, Born, Nursery

READY_WITHIN_S = 300.0
ENDED_PHASES = frozenset({"succeeded", "failed", "cancelled", "timed-out"})


@cache
def start_nursery() -> Nursery:
    """The one that the daemons of this test run come from; without such a run, those of this process."""
    late = (
        "gantree.api.server.daemon",
        "gantree.web.pages",
        "gantree.cli.main",
        "gantree.journal.postgres",
        "uvicorn.lifespan.off",
        "gantree.cli.daemon.up",
        "gantree.cli.kubernetes.schedule",
        "gantree.federation.daemon",
        "gantree.formats.federation",
        "gantree.executors.kubernetes.opening",
        "anyio._backends._asyncio",
        "support.built_application",
    )
    place = os.environ.get(PLACE)
    return Nursery("support.daemon:live", *late, place=Path(place) if place else None)


def live(arguments: list[str]) -> None:
    """The life of a process: `gantree up`, `kubernetes` or `federation`, or a daemon as `Daemon` asks for it.

    "-c", a program and its arguments: as Python has it. What may stand before that: `_prepared`.
    """
    arguments = _prepared(arguments)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], {"__name__": "__main__"})
    elif arguments[0] in ("up", "kubernetes", "federation"):
        from gantree.cli.main import main

        main(arguments)
    else:
        _live_as_asked(arguments)


def _prepared(arguments: list[str]) -> list[str]:
    """Make of this process what the first words say; the others.

    "hanging": one that can be made to hang. "clock" and seconds: one whose wall clock is ahead by so many. "sampling":
    one that asks exporters ten times a second. "reporting": one that reports each second what these said.
    """
    match arguments:
        case ["hanging", *rest]:
            from support.hanging import hang

            hang()
        case ["clock", seconds, *rest]:
            from support.wrong_clocks import set_ahead

            set_ahead(float(seconds))
        case ["sampling", *rest]:
            from gantree.api.gpu_metrics import polling

            polling.EVERY_S = 0.1
        case ["reporting", *rest]:
            from gantree.control.nodes import gpu_use_watch

            gpu_use_watch.REPORT_S = 1.0
        case _:
            return arguments
    return _prepared(rest)


def _live_as_asked(arguments: list[str]) -> None:
    from gantree.api.server.daemon import run_daemon
    from gantree.web.pages import routers

    (
        state,
        policy_file,
        address,
        cert,
        key,
        pages,
        root_path,
        access,
        run_as,
        metrics,
        ports,
        fabric_ports,
        link_load,
        most,
        *cluster,
    ) = arguments
    tls = (Path(cert), Path(key)) if cert else (None, None)
    settings = Settings(
        Path(state),
        Path(cluster[0]).read_text() if cluster else None,
        policy=read_policy(Path(policy_file).read_text(), "policy.yaml"),
        listen=listen_of(address, Path(state) / "token", *tls) if address else None,
        access_file=Path(access) if access else None,
        run_as_submitter=run_as == "run-as",
        root_path=root_path,
        gpu_metrics=tuple(metrics.split()),
        node_metrics=tuple(ports.split()),
        fabric_ports=tuple(fabric_ports.split()),
        link_load=tuple(link_load.split()),
        waiting_limits=WaitingLimits(*map(int, most.split())),
    )
    run_daemon(settings, routers() if pages else ())


class Program:
    """`gantree up`, `gantree kubernetes` or "-c PROGRAM", and all that it prints. It ends with the block."""

    def __init__(self, *words: str, **variables: str) -> None:
        """The command line, and variables of its environment beside ours."""
        said, say = os.pipe()
        self.said = os.fdopen(said, encoding="utf-8")
        self.process = start_nursery().bear([*words], say, variables)
        os.close(say)

    def says(self, words: str) -> str:
        """The next line that has these words."""
        line = next((line for line in self.said if words in line), "")
        assert line, f"it ended, and never said {words!r}"
        return line

    def stop(self) -> int:
        """Its exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(READY_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.said.close()


def unended(client: Client) -> list[str]:
    """The jobs and arrays that are not over, in the order to cancel them: who waits before who runs."""
    rows = [row for row in client.jobs(by="array") if row["phase"] not in ENDED_PHASES]
    return [row["job"] for row in sorted(rows, key=lambda row: row["phase"] != "pending")]


class Daemon:
    """A daemon on a state directory. output is everything that all its processes have printed, in a file.

    policy_text is the policy file of the next process; it may be set anew between two. listen is an address of TCP to
    answer at too, tls the certificate and the key for it. pages: with the web pages, behind root_path. access_file is
    that of the next process. gpu_metrics are exporters that tell how busy GPUs are, with spaces between them;
    node_metrics are those of the rates of NICs, fabric_ports what has the ports of the fabric,
    link_load what has the load of links. prefix: words for `live` before all that.
    """

    prefix: tuple[str, ...] = ()

    def __init__(
        self,
        state_dir: Path,
        cluster_text: str,
        policy_text: str = "preset: gantree",
        *,
        listen: str = "",
        tls: tuple[Path, Path] | None = None,
        pages: bool = False,
        root_path: str = "",
        access_file: Path | None = None,
        run_as_submitter: bool = False,
        gpu_metrics: str = "",
        node_metrics: str = "",
        fabric_ports: str = "",
        link_load: str = "",
        waiting_limits: WaitingLimits = DEFAULT_WAITING_LIMITS,
    ) -> None:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.state_dir = state_dir
        self.client = Client(state_dir)
        self.output = state_dir / "daemon.out"
        self._cluster_file = state_dir / "cluster-of-test.yaml"
        self._cluster_file.write_text(cluster_text)
        self._policy_file = state_dir / "policy-of-test.yaml"
        self.policy_text = policy_text
        self._listen = [listen, *map(str, tls or ("", ""))]
        self._pages = ["pages" if pages else "", root_path]
        self._access = [str(access_file or ""), "run-as" if run_as_submitter else ""]
        self._metrics = [gpu_metrics, node_metrics, fabric_ports, link_load]
        self._most_waiting = f"{waiting_limits.per_user} {waiting_limits.per_queue}"
        self._process: Born | None = None
        self._printed_before = 0

    @property
    def process(self) -> Born:
        """The process that was started last."""
        assert self._process is not None, "the daemon was never started"
        return self._process

    @property
    def url(self) -> str:
        """Where the process that was started last answers over TCP."""
        said = self.output.read_bytes()[self._printed_before :].decode(errors="replace")
        url: str = re.findall(r"https?://[^\s,]+", said)[-1]
        return url

    def keep_address(self) -> None:
        """Have later processes listen where this one does, so that open pages find them."""
        self._listen[0] = urlsplit(self.url).netloc

    def start(self, *, with_cluster: bool = True) -> None:
        """Start a process and wait until it is ready. RuntimeError, with what it printed, if it ends instead."""
        self.spawn(with_cluster=with_cluster)
        deadline = time.monotonic() + READY_WITHIN_S
        while b" ready: " not in (printed := self.output.read_bytes()[self._printed_before :]):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(printed.decode(errors="replace"))
            time.sleep(0.005)

    def spawn(self, *, with_cluster: bool = True) -> None:
        """Start a process and do not wait for it."""
        cluster = [str(self._cluster_file)] if with_cluster else []
        self._policy_file.write_text(self.policy_text)
        with self.output.open("ab") as output:
            self._printed_before = output.tell()
            arguments = [*self.prefix, str(self.state_dir), str(self._policy_file)]
            arguments += [*self._listen, *self._pages, *self._access]
            arguments += [*self._metrics, self._most_waiting, *cluster]
            self._process = start_nursery().bear(arguments, output.fileno())

    def kill(self) -> None:
        """kill -9, at once."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; give the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=READY_WITHIN_S)

    def wait(self, job: str, until: str = "ended", within_s: float = 300) -> dict[str, object]:
        """Wait for a job; AssertionError, with the job as it is, if it takes longer."""
        detail = self.client.job(job, wait_s=within_s, until=until)
        if until == "ended":
            assert detail["phase"] in ENDED_PHASES, detail
        else:
            assert detail["phase"] not in ("pending", "starting"), detail
        return detail

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is not None:
            self.start(with_cluster=False)
        try:
            self._cancel_all()
        finally:
            self.stop()

    def _cancel_all(self) -> None:
        for (
            service
        ) in self.client.services():  # else each replica that is cancelled has a successor
            with suppress(Conflict):  # it ended by itself in between
                self.client.cancel_service(service["service"])
        left = unended(self.client)
        for job in left:
            try:
                self.client.cancel(job)
            except GantreeError:
                continue  # it ended by itself in between
        for job in left:
            self.wait(job)
