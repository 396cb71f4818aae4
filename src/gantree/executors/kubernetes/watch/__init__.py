"""What is seen of the cluster: discovery, and the thread of the API."""
