"""Peers in small, and the pages that compare them."""
