"""Several replicas on one store: the lease, the heartbeat, and streams of runs in other replicas."""
