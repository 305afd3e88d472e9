"""Tests of what leaves a warehouse and comes back: verify, export, import."""
