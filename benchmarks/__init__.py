"""What `qx bench` measures: one folder a capability."""
