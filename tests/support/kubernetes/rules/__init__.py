"""What each kind of resource asks of its writes."""
