"""Spark sessions: Connect or classic, code for workers, errors, patience, and the archive of classes."""
