"""The wheel, built and installed in new environments, without a checkout."""
