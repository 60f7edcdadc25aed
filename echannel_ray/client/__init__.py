"""What programs, gateways and log hosts do with an endpoint: open, produce, consume, derive, leave."""
