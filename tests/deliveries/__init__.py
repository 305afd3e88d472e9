"""Each emitted record is sent by exactly one line, or the dry run said otherwise: a walk and its oracle."""
