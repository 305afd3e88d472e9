"""Tests of what is deployed in containers, without containers."""
