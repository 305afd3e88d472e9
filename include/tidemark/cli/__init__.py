"""The command line: a bare verb acts on a whole pipeline or on the stack, every other command is a noun and a verb."""


def main() -> None:
    """Runs the console script `tidemark`; exits with one of the codes of `tidemark.errors`."""
    import gc

    # Imported modules stay for as long as the process runs: searching them for garbage only makes the start slower.
    gc.disable()
    from tidemark.cli.main import entry

    entry()
