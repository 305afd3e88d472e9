"""Greatest resident memory of processes while something runs."""

import threading

import psutil


class Peaks:
    """Greatest resident memory of processes by name, looked at several times a second.

    Attributes:
        mib: MiB by name; `workers` is the sum over the Python processes below the watched ones.
    """

    def __init__(self) -> None:
        self.mib: dict[str, int] = {}
        self._watched: dict[str, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Peaks":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def watch(self, name: str, pid: int) -> None:
        """Looks at this process under a name from now on."""
        self._watched[name] = pid

    def _look(self) -> None:
        while not self._done.wait(0.2):
            workers = 0
            for name, pid in dict(self._watched).items():
                try:
                    process = psutil.Process(pid)
                    self._note(name, process.memory_info().rss)
                    below = process.children(recursive=True)
                    workers += sum(p.memory_info().rss for p in below if p.name().startswith("python"))
                except psutil.Error:
                    continue
            if workers:
                self._note("workers", workers)

    def _note(self, name: str, size: int) -> None:
        self.mib[name] = max(size >> 20, self.mib.get(name, 0))
