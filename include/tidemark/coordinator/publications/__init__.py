"""Publications: the steps that bring targets from checkpoint to checkpoint (adr/0039)."""
