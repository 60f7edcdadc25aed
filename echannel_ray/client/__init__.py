"""What programs, gateways and keepers of logs do with an endpoint: open, produce, consume, derive, leave."""
