"""The daemon's cluster as it answers, read back: nothing that is held is drawn as free."""

import json

from gantree.api.views import job_view
from gantree.cli.topo.site import answered_site
from gantree.core.scheduler import Scheduler
from gantree.formats import read_cluster, read_job
from gantree.model.events import ClusterObserved, JobSubmitted
from gantree.policy.rules import Policy

SITE = """
name: parted
tiers: [leaf, node]
machines: {a4: {gpus: 4, gpu: A100-80GB, cpus: 64, memory_GiB: 512, devices: {fpga: 2}}}
nodes:
  - {names: n0, machine: a4, at: {leaf: l0}, mig: {instances: [{gpu: 0, profile: 1g.10gb, start: 0}], by: node}}
  - {names: n1, machine: a4, at: {leaf: l0}}
allocations:
  - {job: half, node: n1, shares: [{gpu: 3, compute: 0.5, memory_GiB: 20, isolation: mps}]}
"""
JOBS = """
name: cut
gang: [{role: w, members: 2, each: {mig: 3g.40gb, devices: {fpga: 1}}, run: [sleep]}]
topology: {required: node}
---
name: whole
gang: [{role: w, members: 1, each: {gpus: 2}, run: [sleep]}]
"""


def test_what_the_daemon_tells_is_what_it_holds() -> None:
    scheduler = Scheduler(Policy())
    site = read_cluster(SITE, "site.yaml")
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=site)])
    for job in read_job(JOBS, "jobs.yaml"):
        scheduler.handle([JobSubmitted(id=job.name, observed_at=0.0, job=job.name, spec=job)])
    known = scheduler.ledger.occupancy
    assert known is not None
    assert set(known.owners) == {"site:half", "cut", "whole"}
    found = answered_site(json.loads(json.dumps(job_view.cluster(scheduler.ledger)))).occupancy
    found.check()
    assert found.owners == known.owners
    assert found.parts_of_node == known.parts_of_node
    assert found.free_mask_of_node == known.free_mask_of_node
    assert [found.devices.free("fpga").tolist()] == [known.devices.free("fpga").tolist()]
