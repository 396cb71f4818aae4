"""Services while a daemon leads: whether replicas answer, what routers need to know and report, autoscaling."""
