"""Record formats: how the bytes of a record become the fields of its type, or a dead letter with a reason."""
