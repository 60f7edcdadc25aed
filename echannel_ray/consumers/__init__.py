"""What receives: inboxes, and the drivers that hand events to handlers or to who pulls."""
