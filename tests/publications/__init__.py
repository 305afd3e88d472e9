"""Tests of the targets of publications."""
