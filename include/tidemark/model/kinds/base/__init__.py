"""What kinds of state are made of: their protocol, and the SQL and Python that several of them share."""
