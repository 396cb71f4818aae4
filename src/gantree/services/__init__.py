"""Services, pure: which replicas begin and end (`rollout`), and how many are wanted."""
