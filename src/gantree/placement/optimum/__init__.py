"""The placement problem for OR-Tools CP-SAT, to measure the search by."""
