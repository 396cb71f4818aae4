"""`gantree sweep`: a grid of simulations on all cores, which goes on where it was stopped.

plan      the simulations of a grid, with a key each: what they read and how
worker    runs one of them into a directory, which appears there whole or not at all
runner    runs what is not there yet, on so many processes
outcome   the table and page of all, and sweep.json
"""
