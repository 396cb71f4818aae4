"""The Gantt chart: gangs over time."""
