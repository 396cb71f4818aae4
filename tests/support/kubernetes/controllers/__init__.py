"""What lives beside an API server: controllers, a kubelet, a provisioner."""
