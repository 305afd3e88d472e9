"""The life of one checkpoint: trigger, begin, seal or revoke, publish or abort; and what is told about it after."""
