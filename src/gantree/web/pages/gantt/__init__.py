"""The Gantt chart: which gang ran where, and when."""
