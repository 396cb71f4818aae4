"""Trace-driven simulation: the scheduler of the daemon, `core.scheduler`, under an event heap instead of a clock.

heap       what will happen, in the order of time
cluster    a cluster that carries orders out in simulated time, and remembers how much work each job has done
workload   rows of a trace made into jobs
run        the loop: `simulate(cluster, trace, policy) -> Result`
record     what is noted down while it runs
results    what came out: rows, summary, percentiles
files      summary.json, jobs.csv, report.html in a directory
report     the page, with its charts
bench      how long one decision takes
"""
