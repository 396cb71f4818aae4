"""What the front of a federation answers: jobs, services, tables of routers, metrics."""
