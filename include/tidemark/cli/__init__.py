"""The command line: a bare verb acts on a whole pipeline or on the stack, every other command is a noun and a verb."""


def main() -> None:
    """Runs the console script `tidemark`; exits with one of the codes of `tidemark.errors`."""
    import gc

    # Imported modules stay for as long as the process runs: searching them for garbage only makes the start slower.
    gc.disable()
    try:
        from tidemark.cli.main import entry
    except ModuleNotFoundError as error:
        _complain_without(error)
    entry()


def _complain_without(error: ModuleNotFoundError) -> None:
    """Prints which extra brings a missing package and exits, or raises the error if the package is not optional."""
    import sys

    from tidemark.extras import as_missing

    missing = as_missing(error)
    if missing is None:
        raise error
    print(missing, file=sys.stderr)
    sys.exit(missing.code)
