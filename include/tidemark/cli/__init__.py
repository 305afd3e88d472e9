"""The command line. Verbs on a whole pipeline or on the stack stand alone, the rest is noun and verb."""


def main() -> None:
    """Entry point of the console script `tidemark`; ends the process with an exit code of `tidemark.errors`."""
    from tidemark.cli.main import entry

    entry()
