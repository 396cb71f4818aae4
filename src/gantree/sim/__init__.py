"""Trace-driven simulation: the scheduler of the daemon, `core.scheduler`, under an event heap instead of a clock.

heap       what will happen, in the order of time
cluster    a cluster that carries orders out in simulated time
work       what an attempt does, and how much work each job has done
workload   rows of a trace made into jobs
run        the loop: `simulate(cluster, trace, policy) -> Result`
record     what is noted down while it runs
inputs     what was run, with digests
results    what came out: rows, summary, percentiles
charts     charts of plain rows
measures   what reports draw and compare, beyond the summary
files      summary.json, jobs.csv, timeline.csv, report.html in a directory
report     the page, with its charts
compare    results of several runs beside each other
sweep      a grid of runs on all cores
bench      how long one decision takes
muri       Muri's experiment on 64 GPUs, replayed by its own rules and under our policies
pollux     Pollux' experiment on 64 GPUs, as Muri's; its data lie in a directory of the user's
lingjun    Philly's jobs on sub-fabrics of Lingjun
kueue      the shapes of Kueue's performance tests
"""
