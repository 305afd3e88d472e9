"""Frozen values of the checkpoint protocol: standard library only, no input or output, no clock."""
