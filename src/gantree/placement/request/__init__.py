"""What a job asks of the topology, in numbers of one fabric, and what a site prefers."""
