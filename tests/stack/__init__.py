"""The embedded stack: real processes, in homes of their own."""
