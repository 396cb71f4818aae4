# Below: pathlib and contextlib cost 10 ms of every start, and this file runs before anything else of a gang does.
# ruff: noqa: PTH104, PTH106, PTH108, PTH110, PTH112, PTH118, PTH120, PTH123, PTH208, SIM105
"""The shim: a small process that owns the processes of one member, and outlives the process that started it.

Run as `python -I -S shim.py MEMBER_DIRECTORY STATE_DIRECTORY EPOCH`; standard library only, nothing of gantree. It
starts nothing if a newer epoch than that was obeyed in the state directory (see `local.epochs`). What it must do is in
`launch.json`; what it did is in files beside it, each written to a temporary name, flushed to disk and renamed:

    lock              held while the shim lives; a second shim of the same member finds it and exits
    shim.json         pid, start time in ticks, boot id, cgroup; written before the first process is started
    started.json      every process has been started (its exec succeeded)
    failed.json       some process could not be started; what had been started is being stopped
    exit.<rank>.json  one process ended: exit code, when, in which order, and whether it was stopped
    ended.json        nothing of this member is left, and what it used of CPUs and memory; written last
    stop.json         written by the executor: stop, SIGTERM now and SIGKILL at kill_at_s (of `steady_s`)
    attach/*.json     written by the executor: requests for exec sessions beside the ranks; deleted once read
    save.json         written by the executor: the newest request for a checkpoint, of a job with a signal for it
    signal.json       written by the executor: a signal that every process gets once, as soon as it has a handler for it
    turn.json         written by the executor: whether the processes are suspended now; turn counts, a new one each time

With `check` in launch.json its program runs first, as the daemon's user; the processes follow once it ends with 0.
With `lease` all is killed at the end of that lease, and nothing is started after it (`lease`).

No process is left over. The shim leads its own session, so the end of the daemon or of its terminal does not reach it.
It is a child subreaper: orphans of its processes become its children, and it ends only when it has none left. If the
shim is killed, the kernel kills each process that it started (PR_SET_PDEATHSIG). Their children carry GANTREE_RUN in
their environment, and are in a cgroup where one can be created; the executor kills both.

No member is started twice. Only the holder of the lock goes on, and only if there is no shim.json yet.

The shim is one thread around `sigtimedwait`: a child that ends, SIGUSR1 of the executor, or half a second wakes it, and
it checks everything. A log that grows wakes it only to write down the time (`log_times`). Signals are blocked before
shim.json is written, so it can be woken as soon as its pid is known.
A signal to a process is held back until it has a handler for it: one that still imports libraries would be killed.

Suspended processes are stopped by SIGSTOP: the group of every rank, and single processes that have left those groups. A
process may fork in between, so this is repeated until no process is found running. A stop comes before a suspension:
after SIGTERM nothing is suspended any more, and SIGCONT follows.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36  # <linux/prctl.h>

EPOCH, EPOCH_LOCK = "epoch.json", "epoch.lock"
WAKE = signal.SIGUSR1
_WAITED_FOR = (signal.SIGCHLD, WAKE, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_BLOCKED = (*_WAITED_FOR, signal.SIGIO)  # SIGIO: see `log_times`
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and a child would inherit that."""
_LOOK_EVERY_S, _RETRY_EVERY_S = 0.5, 0.02
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LOOKS_AT_ONCE = 4
"""For processes that still run; one that cannot be stopped now is tried again after half a second."""
_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENFILE, errno.EMFILE, errno.ENOMEM}
)  # fmt: skip
"""Errors that may be gone in a while: a full disk must not make an exit code forgotten."""


def write_json(path: str, value: Any, mode: int = 0o600) -> None:
    """Write a whole file or none, on disk when this returns."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    descriptor = os.open(temporary, _FRESH, mode)
    try:
        os.fchmod(descriptor, mode)
        _write_all(descriptor, json.dumps(value).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    sync_folder(folder)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write to the last byte: a disk that is nearly full takes a part of what it is given. Raises OSError."""
    while data:
        data = data[os.write(descriptor, data) :]


def sync_folder(folder: str) -> None:
    """Make renames and new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: str) -> Any:
    """What write_json wrote, or None where there is no such file. Raises OSError, also for a damaged file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise OSError(errno.EBADMSG, "the file is damaged", path) from error


def steady_s() -> float:
    """Seconds on a clock that cannot be set, and that all processes of a boot share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def boot_id() -> str:
    """What the kernel calls this boot: pids mean nothing in another."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def process_stat(pid: int) -> tuple[str, int, int, int] | None:
    """State letter, parent, process group and start time (ticks since boot) of a process; None if gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19])


def _prctl(option: int, argument: ctypes.c_ulong | ctypes.c_char_p) -> None:
    """Set something about this process. Raises OSError."""
    none = ctypes.c_ulong(0)
    if ctypes.CDLL(None, use_errno=True).prctl(option, argument, none, none, none) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def _descendants(root: int) -> list[tuple[int, int, str]]:
    """(pid, process group, state letter) of every living descendant of a process."""
    children: dict[int, list[tuple[int, int, str]]] = {}
    for name in os.listdir("/proc"):
        stat = process_stat(int(name)) if name.isdigit() else None
        if stat is not None and stat[0] not in "ZX":
            children.setdefault(stat[1], []).append((int(name), stat[2], stat[0]))
    found: list[tuple[int, int, str]] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [pid for pid, _, _ in below]
    return found


def _kill(pid: int, number: int) -> None:
    """Signal a process, or a group where pid is negative; it may be gone already."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


class Shim:
    """One member: its launch record, its processes, and how far it has come.

    One class in one file: the shim runs as a script without any package around it, and all of it turns on one loop.
    """

    def __init__(self, folder: str, launch: dict[str, Any]) -> None:
        self._folder = folder
        self._launch = launch
        self._rank_of_pid: dict[int, int] = {}
        self._check_pid: int | None = None
        self._failed_ranks: set[int] = set()
        self._ended = 0
        self._kill_at_s: float | None = None
        self._unsaved: set[int] = set()
        self._warning: str | None = None
        self._unwarned: set[int] = set()
        self._request_seen: str | None = None
        self._turn = 0
        self._suspended = self._quiet = False
        self._cgroup: str | None = None
        self._unwritten: dict[str, Any] = {}
        sys.path.insert(0, os.path.dirname(__file__))
        self._failures: Any = __import__("start_failure")
        logs, log_cap = [process["log"] for process in launch["processes"]], __import__("log_cap")
        self._logs: Any = log_cap.LogCap(logs, launch.get("logs"), read_json, write_json)
        self._logs_grow_fast = False
        self._log_times: Any = __import__("log_times").LogTimes(logs)
        self._lease: Any = __import__("lease").Lease(launch.get("lease"), read_json, boot_id())

    def run(self) -> None:
        """Start all processes, wait until none is left, and record that."""
        self._poll_stop()
        if self._kill_at_s is None:
            self._begin()
        self._log_times.watch()
        while self._reap() or self._unwritten:
            self._write_on()
            try:
                self._poll_stop()
                self._poll_time_slice()
                self._poll_signals()
                self._start_exec_sessions()
                self._logs_grow_fast = self._logs.look()
            except OSError as error:  # what cannot be read now is looked at again soon
                if error.errno not in _PASSING:
                    raise
            if not self._rank_of_pid or self._past_grace():
                self._kill_all()
            woken_by = self._log_times.wait(_WAITED_FOR, self._patience())
            if woken_by is not None and woken_by.si_signo == signal.SIGTERM:
                self._stop_by(steady_s() + self._launch["failure_grace_s"])
        self._logs.look()
        self._log_times.look()
        used = __import__("cgroups").used(self._cgroup, len(self._launch["processes"]))
        if self._cgroup is not None:
            try:
                os.rmdir(self._cgroup)
            except OSError:
                pass  # a zombie of someone else's may still be counted there; the executor tries again
        self._write("ended.json", {"ended_at": time.time(), **used})
        while self._unwritten:
            time.sleep(_LOOK_EVERY_S)
            self._write_on()

    def _write(self, name: str, record: Any) -> None:
        """Write a file of the member's folder, now or as soon as the disk takes it. Raises OSError."""
        self._unwritten[name] = record
        self._write_on()

    def _write_on(self) -> None:
        """Write what is still to be written, oldest first."""
        for name, record in list(self._unwritten.items()):
            try:
                write_json(f"{self._folder}/{name}", record)
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                return
            del self._unwritten[name]

    def introduce(self) -> None:
        """Record the identity of the shim; from then on this member is never started again."""
        pid = os.getpid()
        stat = process_stat(pid)
        assert stat is not None
        self._cgroup = __import__("cgroups").make_cgroup(f"gantree-{pid}-{stat[3]}")
        me = {"pid": pid, "start_ticks": stat[3], "boot_id": boot_id(), "cgroup": self._cgroup}
        write_json(f"{self._folder}/shim.json", me)

    def _begin(self) -> None:
        """Start the check before the start, if there is one; the processes once it ends with 0."""
        check, shim = self._launch.get("check"), os.getpid()
        if check is None:
            self._start()
            return
        self._check_pid = os.fork()
        if self._check_pid == 0:
            self._exec(check, shim, os.open(os.devnull, os.O_WRONLY))
        self._rank_of_pid[self._check_pid] = check["rank"]

    def _check_ended(self, code: int) -> None:
        """Start the processes after a check that passed; after another one nothing starts."""
        self._check_pid = None
        if code == 0 and self._kill_at_s is None:
            self._start()
        elif self._kill_at_s is None:
            check = self._launch["check"]
            report = read_json(check["report"])
            self._write("failed.json", self._failures.check_failure(check["rank"], report))
            self._stop_by(steady_s() + self._launch["failure_grace_s"])

    def _start(self) -> None:
        """Fork all processes, then wait until each has executed its command or reported why not."""
        shim, (reader, writer) = os.getpid(), os.pipe()
        refused: list[dict[str, Any]] = []
        for process in self._launch["processes"]:
            try:
                pid = os.fork()
            except OSError as error:  # the machine or our cgroup has too many processes
                refused = [self._failures.start_failure(process["rank"], "be forked", error)]
                break
            if pid == 0:
                self._exec(process, shim, writer)
            self._rank_of_pid[pid] = process["rank"]
        os.close(writer)
        with os.fdopen(reader, "rb") as complaints:
            failures = [json.loads(line) for line in complaints] + refused
        if not failures:
            self._write("started.json", {"started_at": time.time()})
            return
        self._failed_ranks = {failure["rank"] for failure in failures}
        self._write("failed.json", failures[0])
        self._stop_by(steady_s() + self._launch["failure_grace_s"])

    def _exec(self, process: dict[str, Any], shim: int, complaints: int) -> NoReturn:
        """In the child: set up the process of one rank and execute its command. Never returns."""
        launch = self._launch | process.get("instead", {})
        doing, is_exec = "prepare its process", False
        argv, env = launch["argv"], launch["env"] | process["env"]
        try:
            _prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
            if os.getppid() != shim:  # it died before the line above could take effect
                os._exit(126)
            os.setpgid(0, 0)
            self._write_cgroup_file("cgroup.procs", "0")
            doing = f"open its log {process['log']}"
            log = os.open(process["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            session = __import__("exec_session") if "guest" in process else None
            if launch.get("as"):
                doing = "take on its user and its secrets"
                env = __import__("drop_privileges").drop_privileges(launch["as"], log, env, shim)
            doing = f"enter its working directory {launch['workdir']}"
            os.chdir(launch["workdir"])
            doing, is_exec = f"run the command {argv[0]!r}", True
            for number in _RESTORED:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if session is not None:
                session.serve(process["guest"], env, complaints)
            os.execvpe(argv[0], argv, env)  # noqa: S606  # no shell, on purpose
        except BaseException as error:  # a child must never return into the shim's loop
            failure = self._failures.start_failure(process["rank"], doing, error, is_exec)
        text = json.dumps(failure, ensure_ascii=False)
        os.write(complaints, text.encode(errors="replace") + b"\n")
        self._failures.log_failure(failure["reason"])
        os._exit(failure["code"])

    def _write_cgroup_file(self, name: str, text: str) -> None:
        """Where there is none, or a kernel before 5.14 has no such file, the subreaper and the mark must do."""
        try:
            with open(f"{self._cgroup}/{name}", "w", encoding="ascii") as file:
                file.write(text)
        except OSError:
            pass

    def _reap(self) -> bool:
        """Collect what has ended; False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            rank = self._rank_of_pid.pop(pid, None)
            self._unsaved.discard(pid)
            self._unwarned.discard(pid)
            if pid == self._check_pid:
                self._check_ended(os.waitstatus_to_exitcode(status))
            elif rank is not None and rank not in self._failed_ranks:
                self._record_exit(rank, os.waitstatus_to_exitcode(status))

    def _record_exit(self, rank: int, code: int) -> None:
        exit_code = code if code >= 0 else 128 - code
        record = {
            "rank": rank,
            "exit_code": exit_code,
            "ended_at": time.time(),
            "ended_steady_s": steady_s(),
            "order": self._ended,
            "was_stopping": self._kill_at_s is not None,
        }
        self._ended += 1
        if exit_code != 0:
            self._stop_by(steady_s() + self._launch["failure_grace_s"])
        self._write(f"exit.{rank}.json", record)

    def _poll_stop(self) -> None:
        for stop in (read_json(f"{self._folder}/stop.json"), self._lease.stop()):
            if stop is not None:
                self._stop_by(stop["kill_at_s"])

    def _stop_by(self, kill_at_s: float) -> None:
        """Ask everything to end; a later stop can only bring the end nearer."""
        if self._kill_at_s is None:
            self._terminate()
        self._kill_at_s = kill_at_s if self._kill_at_s is None else min(self._kill_at_s, kill_at_s)

    def _terminate(self) -> None:
        """SIGTERM, once, to the group of every rank and to what has left those groups."""
        for target in self._signal_targets():
            _kill(target, signal.SIGTERM)
            _kill(target, signal.SIGCONT)

    def _signal_targets(self) -> list[int]:
        """The targets of a signal to all: the group of each rank (negative), and processes outside these groups."""
        below = _descendants(os.getpid())
        strays = [pid for pid, group, _ in below if group not in self._rank_of_pid]
        return [-pid for pid in self._rank_of_pid] + strays

    def _poll_time_slice(self) -> None:
        """Suspend or continue all processes by the newest turn, unless a stop was requested."""
        turn = None if self._kill_at_s is not None else read_json(f"{self._folder}/turn.json")
        if turn is None:
            return
        if turn["turn"] > self._turn:
            self._turn, self._suspended, self._quiet = turn["turn"], turn["suspended"], False
        if self._quiet:
            return
        if self._suspended:
            self._quiet = any(self._all_suspended() for _ in range(_LOOKS_AT_ONCE))
        else:
            for target in self._signal_targets():
                _kill(target, signal.SIGCONT)
            self._quiet = True

    def _all_suspended(self) -> bool:
        """Send SIGSTOP to all processes that run; True if none did.

        A process in state D (in a driver, or in vfork for a stopped child) stops before it does anything else.
        """
        for pid in self._rank_of_pid:
            _kill(-pid, signal.SIGSTOP)
        awake = [(pid, state) for pid, _, state in _descendants(os.getpid()) if state not in "Tt"]
        for pid, _ in awake:
            _kill(pid, signal.SIGSTOP)
        return all(state == "D" for _, state in awake)

    def _kill_all(self) -> None:
        self._write_cgroup_file("cgroup.kill", "1")
        for pid, _, _ in _descendants(os.getpid()):
            _kill(pid, signal.SIGKILL)

    def _poll_signals(self) -> None:
        """Signal the ranks for a checkpoint, and before their time limit, each as soon as it has a handler."""
        name, ranks = self._launch["checkpoint_signal"], set(self._rank_of_pid)
        if self._kill_at_s is not None:
            return
        request = read_json(f"{self._folder}/save.json")
        if request is not None and request["request"] != self._request_seen:
            self._request_seen, self._unsaved = request["request"], ranks
        if self._warning is None and (sent := read_json(f"{self._folder}/signal.json")) is not None:
            self._warning, self._unwarned = sent["signal"], ranks.copy()
        for pids, wanted in ((self._unsaved, name), (self._unwarned, self._warning)):
            if pids:
                __import__("ready_signals").signal_ready(pids, signal.Signals[str(wanted)])

    def _start_exec_sessions(self) -> None:
        """Start the exec sessions that were requested: they end with the ranks and do not count for the exit code."""
        folder, shim = f"{self._folder}/attach", os.getpid()
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for path in [f"{folder}/{name}" for name in names if name.endswith(".json")]:
            request = read_json(path)
            os.unlink(path)
            if request and self._kill_at_s is None and self._rank_of_pid:
                self._quiet = False  # the session is suspended, too, where the ranks are
                try:
                    pid = os.fork()
                except OSError:  # too many processes: the request times out
                    pid = -1
                if pid == 0:
                    self._exec(request, shim, os.open(os.devnull, os.O_WRONLY))

    def _past_grace(self) -> bool:
        return self._kill_at_s is not None and steady_s() >= self._kill_at_s

    def _patience(self) -> float:
        """Seconds to sleep until something must be done that no signal announces."""
        is_hasty = self._past_grace() or self._unsaved or self._logs_grow_fast
        if not self._rank_of_pid or is_hasty:
            return _RETRY_EVERY_S
        if self._kill_at_s is None:
            return _LOOK_EVERY_S
        return max(0.0, min(_LOOK_EVERY_S, self._kill_at_s - steady_s()))


def main(folder: str, state: str, epoch: int) -> int:
    """Own the member of this directory. 0: done or nothing to do."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    os.chdir("/")
    lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    gate = os.open(f"{state}/{EPOCH_LOCK}", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(gate, fcntl.LOCK_SH)
    obeyed = read_json(f"{state}/{EPOCH}")
    if os.path.exists(f"{folder}/shim.json") or (obeyed and obeyed["epoch"] > epoch):
        return 0
    _prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    _prctl(PR_SET_NAME, ctypes.c_char_p(b"gantree-shim"))
    launch = read_json(f"{folder}/launch.json")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # the daemon has raised its own
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(launch.get("open_files") or soft, hard), hard))
    shim = Shim(folder, launch)
    shim.introduce()
    os.close(gate)
    shim.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
