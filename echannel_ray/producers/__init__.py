"""What publishes: producers, and the sinks that their events go to."""
