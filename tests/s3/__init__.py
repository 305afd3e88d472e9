"""A store that speaks S3, and what goes wrong on the way to it."""
