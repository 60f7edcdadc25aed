"""Event channels for Ray: typed publish and subscribe with eager handlers."""
