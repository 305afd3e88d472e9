"""Publications: what comes out of state."""
