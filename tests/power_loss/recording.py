"""What a process does to the files below a folder, as strace shows it: deltalake writes from Rust, unseen by Python."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CALLS = (
    *("open", "openat", "creat", "write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate", "truncate"),
    *("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "mkdir"),
    *("mkdirat", "rmdir", "fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "copy_file_range", "sendfile"),
    *("fallocate", "splice"),
)
"""Every call that changes a file, a name, or what of them is durable."""
_PLAIN = {"fdatasync": "fsync", "openat": "open", "renameat": "rename", "renameat2": "rename", "linkat": "link"} | {
    "unlinkat": "unlink",
    "mkdirat": "mkdir",
}
KNOWN = ("write", "rename", "link", "unlink", "mkdir", "rmdir", "fsync")
"""What the model knows beside `open`; anything else below the folder is an error of the test."""
_LINE = re.compile(r"^(?P<pid>\d+) +(?P<rest>.*)$", re.DOTALL)
_RESUMED = re.compile(r"^<\.\.\. (?P<call>\w+) resumed>(?P<rest>.*)$", re.DOTALL)
_CALL = re.compile(r"^(?P<call>\w+)\((?P<args>.*)\) += (?P<result>-?\d+)(?P<at><.*>)?", re.DOTALL)
_ARGUMENT = re.compile(r'"(?P<text>(?:\\x[0-9a-f]{2})*)"(?P<cut>\.\.\.)?|<(?P<at>[^>]*)>|(?P<flags>[A-Z_|0-9]+)')


@dataclass(frozen=True, slots=True)
class Call:
    """One call that has succeeded.

    Attributes:
        name: of the system call, without its variants: `open write truncate rename link unlink mkdir rmdir fsync`.
        paths: what it is about; of two the second is the new name.
        data: what was written.
        creates: of `open`: whether it makes the file where there is none.
        empties: of `open`: whether it empties a file that is there.
    """

    name: str
    paths: tuple[Path, ...]
    data: bytes = b""
    creates: bool = False
    empties: bool = False


def available() -> bool:
    """Whether strace is here, and may trace."""
    found = shutil.which("strace")
    return (
        found is not None
        and subprocess.run([found, "-f", "--seccomp-bpf", "-qq", "true"], capture_output=True).returncode == 0
    )


def recorded(command: Sequence[str], below: Path, log: Path) -> list[Call]:
    """Runs a command and answers what it did below a folder.

    Raises:
        subprocess.CalledProcessError: the command failed.
        ValueError: it made a call below the folder that is not understood.
    """
    strace = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-y",
        "-xx",
        "-s",
        "100000000",
        "-o",
        str(log),
        "-e",
        f"trace={','.join(CALLS)}",
    ]
    # One thread, where that can be had: calls of several at once would have no order.
    single = {"RAYON_NUM_THREADS": "1", "TOKIO_WORKER_THREADS": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([*strace, *command], check=True, env={**os.environ, **single})
    with log.open() as lines:
        return [call for text in _whole(lines) if (call := _parsed(text, below)) is not None]


def _whole(lines: Iterator[str]) -> Iterator[str]:
    """Calls in one piece, each where it ended: another thread may have been shown in between."""
    begun: dict[str, str] = {}
    for line in lines:
        found = _LINE.match(line.rstrip("\n"))
        if found is None:
            continue
        pid, rest = found["pid"], found["rest"]
        resumed = _RESUMED.match(rest)
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>").rstrip()
        elif resumed is not None:
            yield begun.pop(pid) + resumed["rest"].lstrip()
        else:
            yield rest


def _parsed(text: str, below: Path) -> Call | None:
    found = _CALL.match(text)
    if found is None or int(found["result"]) < 0:
        return None
    texts, places, flags = [], [], ""
    for part in _ARGUMENT.finditer(found["args"]):
        if part["text"] is not None:
            if part["cut"]:
                raise ValueError(f"strace has cut an argument: {text[:80]}")
            texts.append(bytes.fromhex(part["text"].replace("\\x", "")))
        elif part["at"] is not None:
            places.append(_place(part["at"]))
        else:
            flags += f"|{part['flags']}|"
    return _call(found["call"], texts, places, flags, below, text)


def _place(annotation: str) -> Path:
    """Where a descriptor leads, as `-y` shows it."""
    return Path(os.fsdecode(bytes.fromhex(annotation.replace("\\x", ""))) if "\\x" in annotation else annotation)


def _call(name: str, texts: list[bytes], places: list[Path], flags: str, below: Path, text: str) -> Call | None:
    if name in ("write", "fsync", "fdatasync"):
        call = Call(_PLAIN.get(name, name), tuple(places[:1]), b"".join(texts))
    elif texts:
        # Names are absolute, or relative to the working folder, which is not below the warehouse.
        named = texts[1:] if name.startswith("symlink") else texts
        call = Call(_PLAIN.get(name, name), tuple(Path(os.fsdecode(t)) for t in named))
    else:
        call = Call(name, tuple(places))
    if not any(p == below or below in p.parents for p in call.paths):
        return None
    if call.name == "open" and "|O_WRONLY" not in flags and "|O_RDWR" not in flags:
        return None
    if call.name == "open":
        return Call("open", call.paths, creates="O_CREAT" in flags, empties="O_TRUNC" in flags)
    if call.name not in KNOWN:
        raise ValueError(f"a call that the model does not know: {text[:200]}")
    return Call("rmdir", call.paths) if call.name == "unlink" and "AT_REMOVEDIR" in flags else call
