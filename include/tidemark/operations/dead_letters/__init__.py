"""Dead letters: what operators could not use."""
