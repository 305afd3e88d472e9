"""Compacts the operators of a pipeline with spark-submit: `compact.py PIPELINE ANSWER`.

The code is in `tidemark.jobs.compaction_job`, which tasks use directly; this file is for your own spark-submit.
"""

import sys

from tidemark.jobs.compaction_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
