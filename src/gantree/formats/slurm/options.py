"""The options of a header: supported, without effect (a warning), or refused (with an alternative).

A table only; what is read of a value is `slurm_values`, what a job is made of `scripts`. docs/slurm.md shows it.
"""

from collections.abc import Mapping

from gantree.formats.slurm.header import OWN, SLURM, Known

_NO, _MAYBE = "no", "maybe"

READ: Mapping[str, Known] = {
    "job-name": Known("J"),
    "nodes": Known("N"),
    "ntasks": Known("n"),
    "ntasks-per-node": Known(),
    "gpus": Known("G"),
    "gpus-per-node": Known(),
    "gpus-per-task": Known(),
    "gres": Known(),
    "cpus-per-task": Known("c"),
    "cpus-per-gpu": Known(),
    "mem": Known(),
    "mem-per-cpu": Known(),
    "mem-per-gpu": Known(),
    "time": Known("t"),
    "partition": Known("p"),
    "priority": Known(),
    "switches": Known(),
    "signal": Known(),
    "requeue": Known(takes=_NO),
    "no-requeue": Known(takes=_NO),
    "array": Known("a"),
    "dependency": Known("d"),
    "output": Known("o"),
    "error": Known("e"),
    "chdir": Known("D"),
    "export": Known(),
    "exclusive": Known(takes=_MAYBE),
    "constraint": Known("C"),
    "hold": Known("H", _NO),
    "spread-job": Known(takes=_NO),
}
"""Slurm's, in the words of its manual."""

OWN_READ: Mapping[str, Known] = {
    "queue": Known(),
    "members": Known(),
    "processes": Known(),
    "required": Known(),
    "preferred": Known(),
    "elastic": Known(),
    "restarts": Known(),
    "checkpoint-every": Known(),
    "checkpoint-path": Known(),
    "env": Known(),
    "workdir": Known(),
}
"""gantree's, in `#GANTREE` lines alone."""

WITHOUT_EFFECT: Mapping[str, tuple[Known, str]] = {
    "account": (Known("A"), "guarantees belong to queues: choose one with --partition"),
    "qos": (Known("q"), "use `priority` of a job file"),
    "comment": (Known(), ""),
    "mail-type": (Known(), "gantree sends no mail"),
    "mail-user": (Known(), "gantree sends no mail"),
    "open-mode": (Known(), "logs are appended"),
    "nice": (Known(takes=_MAYBE), "write `priority`"),
    "wckey": (Known(), ""),
    "distribution": (Known("m"), "gantree orders ranks by the links between their GPUs"),
    "hint": (Known(), ""),
    "gpu-bind": (Known(), "a member's GPUs come in link order; LOCAL_RANK picks one"),
    "gpu-freq": (Known(), ""),
    "cpu-freq": (Known(), ""),
    "mem-bind": (Known(), ""),
    "gres-flags": (Known(), ""),
    "ntasks-per-core": (Known(), ""),
    "ntasks-per-socket": (Known(), ""),
    "threads-per-core": (Known(), ""),
    "acctg-freq": (Known(), ""),
    "profile": (Known(), ""),
    "propagate": (Known(takes=_MAYBE), ""),
    "get-user-env": (Known(takes=_MAYBE), ""),
    "kill-on-invalid-dep": (Known(), "a job always fails if a job in its `after` fails"),
    "time-min": (Known(), ""),
    "verbose": (Known("v", _NO), ""),
    "quiet": (Known("Q", _NO), ""),
    "parsable": (Known(takes=_NO), ""),
    "ignore-pbs": (Known(takes=_NO), ""),
    "delay-boot": (Known(), ""),
    "use-min-nodes": (Known(takes=_NO), ""),
}
"""Slurm's that change nothing here, each with what to know: a warning says so."""

REFUSED: Mapping[str, tuple[Known, str]] = {
    "nodelist": (Known("w"), "node_labels of a job file, or --constraint"),
    "exclude": (Known("x"), "node_labels of a job file, or --constraint"),
    "nodefile": (Known("F"), "node_labels of a job file, or --constraint"),
    "begin": (Known("b"), "`gantree hold` and `gantree release`"),
    "deadline": (Known(), "--time"),
    "licenses": (Known("L"), "devices of a job file"),
    "reservation": (Known(), "a queue with a cell: docs/cells.md"),
    "contiguous": (Known(takes=_NO), "--switches, or #GANTREE --required"),
    "sockets-per-node": (Known(), "node_labels of a job file"),
    "cores-per-socket": (Known(), "node_labels of a job file"),
    "gpus-per-socket": (Known(), "--gpus-per-node"),
    "ntasks-per-gpu": (Known(), "--ntasks-per-node"),
    "mincpus": (Known(), "--cpus-per-task"),
    "core-spec": (Known("S"), "--cpus-per-task"),
    "thread-spec": (Known(), "--cpus-per-task"),
    "tmp": (Known(), "node_labels of a job file"),
    "overcommit": (Known("O", _NO), "--cpus-per-task"),
    "oversubscribe": (Known("s", _NO), "gpu_share of a job file: docs/time-sharing.md"),
    "no-kill": (Known("k", _MAYBE), "restarts: a gang runs whole or not at all"),
    "input": (Known("i"), "a redirection in the script"),
    "wrap": (Known(), "gantree run COMMAND..."),
    "wait": (Known("W", _NO), "gantree run, which follows the job"),
    "immediate": (Known("I", _MAYBE), "gantree place, which says whether it fits now"),
    "test-only": (Known(takes=_NO), "gantree place, which starts nothing"),
    "export-file": (Known(), "--export=NAME=VALUE"),
    "clusters": (Known("M"), "--state of the other daemon"),
    "cluster-constraint": (Known(), "--state of the other daemon"),
    "uid": (Known(), "user of a job file"),
    "gid": (Known(), "user of a job file"),
    "container": (Known(), "image of a job file"),
    "bb": (Known(), "data of a job file"),
    "reboot": (Known(takes=_NO), "nothing: gantree does not reboot nodes"),
    "segment": (Known(), "slices of a job file"),
}
"""Slurm's that a job may depend on and that cannot be had here, each with the way out."""

KNOWN: Mapping[str, Mapping[str, Known]] = {
    SLURM: {**READ, **{name: known for name, (known, _) in (*WITHOUT_EFFECT.items(), *REFUSED.items())}},
    OWN: {**READ, **OWN_READ},
}  # fmt: skip
"""By the mark of the line."""
