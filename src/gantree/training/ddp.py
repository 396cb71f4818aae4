"""PyTorch DistributedDataParallel: measures each rank's own time of a step, so that a slow rank is named.

    from gantree.training import ddp as gantree_ddp

    model = DistributedDataParallel(model)
    gantree_ddp.watch(model)                  # on every rank, before the first backward pass

DDP reduces the gradients bucket by bucket while the backward pass still computes; before the optimizer it waits for the
last one. So the own time of a step is from the end of the last bucket's reduction to the moment the last bucket of the
next step is ready: data loading, the forward and the backward pass, several of them where gradients are accumulated.
Collectives in between (tensor parallelism, buffers that are broadcast, a loss that is averaged) are part of it.

A communication hook tells both moments. On CPUs the host's clock measures, on GPUs events of the streams, which are
read later: nothing waits for the device. What goes wrong in measuring ends the measuring, never the training.
"""

import sys
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from gantree import training
from gantree.training.own_time import StepTimes

MOST_PENDING = 64
"""Steps whose GPU events are not over yet; more are dropped."""

Hook = Callable[[Any, Any], Any]


class Clock(Protocol):
    """Marks moments, and says how far apart they are."""

    def mark(self) -> Any:
        """Return a mark of the current moment, for GPUs that of the current stream."""
        ...

    def between_s(self, begin: Any, end: Any) -> float | None:
        """Return the seconds between two marks; None while the later one has not come."""
        ...


class HostClock:
    """The clock of the host: the step is measured as the process sees it."""

    def __init__(self, times: StepTimes) -> None:
        self._times = times

    def mark(self) -> float:
        """Return the time in seconds."""
        return self._times.now()

    def between_s(self, begin: float, end: float) -> float:
        """Return the seconds between two marks."""
        return end - begin


class CudaClock:
    """Events of CUDA streams (on ROCm, of HIP): the step is measured as the GPU sees it."""

    def __init__(self) -> None:
        self._cuda = import_module("torch").cuda

    def mark(self) -> Any:
        """Return an event of the current stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_s(self, begin: Any, end: Any) -> float | None:
        """Return the seconds between two events; None while the GPU has not come to the later one."""
        if not (begin.query() and end.query()):
            return None
        return float(begin.elapsed_time(end)) / 1e3


class Measuring:
    """The own times of the steps of one model. Its methods never raise: after an error they do nothing."""

    def __init__(self, times: StepTimes, clock: Clock) -> None:
        self._times = times
        self._clock: Clock | None = clock
        self._step = 0
        self._left: Any = None
        self._pending: deque[tuple[int, Any, Any]] = deque(maxlen=MOST_PENDING)

    def entered(self) -> None:
        """The last gradients of a step are ready."""
        self._guarded(self._enter)

    def left(self) -> None:
        """They are reduced."""
        self._guarded(self._leave)

    def _enter(self, clock: Clock) -> None:
        if self._left is not None:
            self._pending.append((self._step, self._left, clock.mark()))
        self._step += 1
        while self._pending:
            step, begin, end = self._pending[0]
            own_s = clock.between_s(begin, end)
            if own_s is None:
                return
            self._pending.popleft()
            self._times.add(own_s, step)

    def _leave(self, clock: Clock) -> None:
        self._left = clock.mark()

    def _guarded(self, act: Callable[[Clock], None]) -> None:
        if self._clock is None:
            return
        try:
            act(self._clock)
        except Exception as error:  # whatever it is, the training goes on
            self._clock = None
            print(f"gantree: own times are no longer measured: {error!r}", file=sys.stderr)  # noqa: T201  # the script's own log is the only place its author looks


def watch(model: Any, hook: Hook | None = None, state: Any = None) -> bool:
    """Measure this rank's own times of a DistributedDataParallel model; returns whether it does. Call it on every rank.

    DDP has one communication hook: pass yours with its state here instead of registering it; None: all-reduce, as
    without a hook. Outside gantree only a hook that was passed is registered. Raises ImportError where torch is
    missing, and what DDP raises where the model has a hook already.
    """
    times = training.step_times()
    if times is None:
        if hook is not None:
            model.register_comm_hook(state, hook)
        return False
    if hook is None:
        hooks = import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
        hook = hooks.allreduce_hook
    on_gpu = next(model.parameters()).device.type == "cuda"
    measuring = Measuring(times, CudaClock() if on_gpu else HostClock(times))
    model.register_comm_hook(state, measured(hook, measuring))
    return True


def watch_wrapped(model: Any) -> bool:
    """Watch what a framework has wrapped, if that is DDP without a communication hook; returns whether it does."""
    if not isinstance(model, import_module("torch.nn.parallel").DistributedDataParallel):
        return False
    try:
        return watch(model)
    except RuntimeError:  # it has a hook, which it keeps
        return False


def measured(hook: Hook, measuring: Measuring) -> Hook:
    """Return the hook with the moments of its last bucket measured."""

    def last_bucket_measured(state: Any, bucket: Any) -> Any:
        if not bucket.is_last():
            return hook(state, bucket)
        measuring.entered()
        return hook(state, bucket).then(_reduced)

    def _reduced(future: Any) -> Any:
        measuring.left()
        return future.value()

    last_bucket_measured.__annotations__.clear()  # DDP refuses any but its own types
    return last_bucket_measured
