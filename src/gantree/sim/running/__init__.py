"""The model of running: what makes the jobs of a simulation slower, stops them or moves their load.

model       what may be on, and its figures; all off by default
step_speed  progress by the step time of the actual placement
"""
