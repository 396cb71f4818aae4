"""What an event does to a job, from its launch to the day on which it is dropped."""
