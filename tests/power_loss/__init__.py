"""Power loss: what a file system may leave of recorded operations, and whether the product lives with it."""
