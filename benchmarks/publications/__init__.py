"""What a publication costs, compared with Delta's MERGE and Structured Streaming over the same changes."""
