"""The parts of a plan, frozen before anything is read: parent, ranges, input state, copies, sinks and replays."""
