"""The protocols of the kinds of state, and the SQL and Python that several kinds share."""
