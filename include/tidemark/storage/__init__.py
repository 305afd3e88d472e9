"""Objects and files: a local disk or a bucket, locks, caches, staging."""
