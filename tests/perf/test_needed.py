"""Which files a point needs, against small logs and metadata that are written here by hand."""

import json
import zipfile
from pathlib import Path

from benchmarks.needed import delta_files, flink_files, rocksdb_files


def _commit(table: Path, version: int, *actions: dict[str, object]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def _add(path: str, vector: str = "") -> dict[str, object]:
    held = {"deletionVector": {"storageType": "u", "pathOrInlineDv": vector, "offset": 1}} if vector else {}
    return {"add": {"path": path, "partitionValues": {}} | held}


def test_versions_of_a_table_need_their_own_files_and_vectors(tmp_path: Path) -> None:
    # The example of Delta's protocol, of a file of deletion vectors in a folder and by its UUID.
    vector, name = "ab^-aqEH.-t@S}K{vb[*k^", "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    _commit(tmp_path, 0, _add("a"), _add("b"))
    _commit(tmp_path, 1, {"remove": {"path": "a"}}, _add("c"))
    _commit(tmp_path, 2, _add("b", vector), {"remove": {"path": "b"}})
    assert delta_files(tmp_path, [0]) == {tmp_path / "a", tmp_path / "b"}
    assert delta_files(tmp_path, [1]) == {tmp_path / "b", tmp_path / "c"}
    assert delta_files(tmp_path, [1, 2]) == {tmp_path / "b", tmp_path / "c", tmp_path / name}


def test_versions_of_a_state_store_need_their_snapshots_and_the_files_of_those(tmp_path: Path) -> None:
    for part in ("0", "1"):
        (tmp_path / part).mkdir()
        for version in (4, 5):
            files = [
                {"localFileName": f"{n}.sst", "dfsSstFileName": f"{n}-x.sst", "sizeBytes": 1} for n in (3, version)
            ]
            with zipfile.ZipFile(tmp_path / part / f"{version}.zip", "w") as archive:
                archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files, "numKeys": 1}))
    (tmp_path / "_metadata").mkdir()
    wanted = {tmp_path / part / name for part in "01" for name in ("5.zip", "SSTs/3-x.sst", "SSTs/5-x.sst")}
    assert rocksdb_files(tmp_path, [5]) == wanted


def test_a_checkpoint_of_flink_needs_its_folder_and_the_shared_files_that_it_names(tmp_path: Path) -> None:
    used, other, inside = (f"{n}a2e2f1c-8a38-4a0e-9f20-0a8d1a5f3c11" for n in "078")
    for path in (f"shared/{used}", f"shared/{other}", "chk-7/own"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    (tmp_path / "chk-7" / "_metadata").write_bytes(
        b"".join(b"\x00\x1ffile:/some/job/shared/" + name.encode() + b"\x00" for name in (used, inside))
    )
    wanted = {tmp_path / "chk-7" / "own", tmp_path / "chk-7" / "_metadata", tmp_path / "shared" / used}
    assert flink_files([tmp_path / "chk-7"]) == wanted
