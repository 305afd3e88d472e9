"""What the store holds, typed and verified: objects, numbered series, stop records, tombstones, timelines."""
