"""Targets of publications: state brought to readers that do not know Tidemark, one file for each kind of target."""
