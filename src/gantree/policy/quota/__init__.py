"""What each queue is guaranteed, may borrow, and may use at most."""
