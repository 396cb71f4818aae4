"""The placement problem for OR-Tools CP-SAT, an oracle for the quality of the search."""
