"""What a plan freezes before anything is read: parent, ranges, input state, copies, sinks, and what is repeated."""
