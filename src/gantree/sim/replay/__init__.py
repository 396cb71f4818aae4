"""What another policy would have done with what a daemon recorded.

recording    jobs, requests and changes of the site that a journal has, and what the cluster needed to carry orders out
fold         facts -> what became of each job, and how much work it was
requests     events -> what a simulation is told beside submissions
work         how much work a job is whose run was not recorded to its end
site         the site of a snapshot as events
snapshot     a snapshot of Kubernetes as a recording
outcomes     one row a job, from a record or from a simulation, and figures over them
replaying    a recording -> its simulation under a policy
comparison   the record, the recorded policy simulated and another policy simulated, beside each other
agreement    order and placement of a record beside those of its simulation
batches      the batches of a journal decided again, which a test holds equal to its facts
fit          whether a policy suits the recorded jobs
files        replay.json, jobs.csv and a directory of each simulation
reading      a journal -> a recording; the only module here that reads a journal
"""
