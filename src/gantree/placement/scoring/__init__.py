"""What a placement takes away from the demand to come, and how well nodes suit preferred affinity."""
