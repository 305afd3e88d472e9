"""Tests of single modules, without any service."""
