"""What a publication costs, beside Delta's MERGE and Structured Streaming over the same changes."""
