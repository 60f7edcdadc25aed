"""What runs in a pod of Kubernetes beside Ray: the start command, the probes, the drain."""
