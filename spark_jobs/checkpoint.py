"""Executes the plan of a slot with spark-submit: `checkpoint.py PIPELINE SLOT REQUEST ANSWER`.

The code is in `tidemark.jobs.checkpoint_job`, which tasks use directly; this file is for your own spark-submit.
"""

import sys

from tidemark.jobs.checkpoint_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
