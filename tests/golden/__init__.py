"""Golden warehouses: written by a release, read for ever."""
