"""What a placement takes away from those to come, and what members like."""
