"""Values of one checkpoint: plan, manifest, segments, messages, failures, and objects of the store."""
