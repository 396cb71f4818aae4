"""Who is eligible to start, and how urgent that is."""
