"""Places that a team shares: one port, an adapter for each kind, and what all of them have in common."""
