"""The command line: a bare verb acts on a whole pipeline or on the stack, every other command is a noun and a verb."""


def start() -> None:
    """Runs the console script `tidemark`; exits with one of the codes of `tidemark.errors`."""
    import atexit
    import gc

    # Imported modules stay for as long as the process runs: searching them for garbage only makes the start slower.
    gc.disable()
    codes: list[int] = []
    if not atexit._ncallbacks():
        # Called last: after the threads have ended and after the functions that other packages register later. If a
        # package has registered one already, such as coverage or a tracer, the process ends as Python ends it.
        atexit.register(_end_process, codes)
    try:
        try:
            from tidemark.cli.main import entry
        except ModuleNotFoundError as error:
            _complain_without(error)
        entry()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            codes.append(ended.code or 0)
        raise


main = start
"""The name that the console script imports; `tidemark.cli.main` is a module too, once it is imported."""


def _end_process(codes: list[int]) -> None:
    """Ends the process with the code of a command, and leaves its memory to the operating system.

    Python would delete hundreds of modules one by one, which takes up to a third of a short command's time. It does so
    if there is no code, because the command ended with a defect, or if a stream cannot be written: it reports both.
    """
    import os
    import sys

    if not codes:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(codes[0])


def _complain_without(error: ModuleNotFoundError) -> None:
    """Prints which extra brings a missing package and exits, or raises the error if the package is not optional."""
    import sys

    from tidemark.extras import as_missing

    missing = as_missing(error)
    if missing is None:
        raise error
    print(missing, file=sys.stderr)
    sys.exit(missing.code)
