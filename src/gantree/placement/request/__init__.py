"""What a job requests of the topology, in numbers of one fabric, and what a site prefers."""
