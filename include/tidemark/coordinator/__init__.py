"""The verbs of a checkpoint's life over ports alone: plan, begin, seal or revoke, publish or abort."""
