"""Lives under faults: one seed drives the real controller, journal and recovery on a simulated site.

`life.Life` is one life; `plan` draws what happens in it, `actions` does it. Simulated are the clocks of the machines
(`clocks`), the disk below SQLite (`disk`, `write_ahead_log`), the network (`network`) and the cluster (`cluster`,
`attempt`). `daemon` is one process of the control plane; `checks` and `convergence` say what must hold. `soak` runs
many lives, `shrink` shortens one that fails. All that decides, records or recovers is imported from production code.
"""
