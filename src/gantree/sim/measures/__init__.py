"""Measures of a run beyond its summary: what reports draw and what `gantree compare` compares. Pure, and no charts.

attempts        attempts with the rows of their jobs
steps           step functions over time, and their means over equal parts of it
timeline        allocation, useful work, waiting jobs, queues, fairness and fragmentation over time
fairness        weighted max-min fair shares and Jain's index
fragmentation   free GPUs in domains that are wholly free
size_classes    jobs by the number of their GPUs, and statistics of each class
stop_costs      GPU-hours lost by cause
energy          energy of GPUs by a model of idle and busy power
money           GPU-hours at list prices
summary         the figures that go into summary.json
"""
