"""Operations on completed checkpoints: pin, verify, import, restore, fork, promote, backfill, stop and resume."""
