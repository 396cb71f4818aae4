"""Commands about queues: shares, usage and the policy."""
