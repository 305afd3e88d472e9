"""The contents of the store, typed and verified: objects, numbered records, stops, tombstones, timelines."""
