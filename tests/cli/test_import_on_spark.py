"""An export of what Spark has made, imported: Spark goes on from it to the state that the first pipeline comes to."""

from pathlib import Path

from tests.cli.conftest import DECLARATION, TillPipeline


def test_spark_goes_on_from_an_import_as_from_its_own_checkpoint(line: TillPipeline, tmp_path: Path) -> None:
    tidemark, folder = line.tidemark, str(tmp_path / "export")
    line.run("--max-records", "40", "--once")
    line.run()
    tidemark("export", "till", "--to", folder).ok()
    tidemark.declare(
        DECLARATION.read_text().replace('name="till"', 'name="till_2"'), file="second.py", topic=line.topic
    )
    done = tidemark("import", folder, "--as", "till_2", "--execute", "--json").ok().json
    assert (done["from"], done["checkpoint"]) == ("till chk-2", "chk-3")
    line.send(30)
    made = line.run()
    again = tidemark("run", "till_2", "--json").ok().json
    assert again["records"] == made["records"] == 30
    assert (again["parent"], again["ranges"]) == ("chk-3", made["ranges"])
    for uid in ("accounts", "tills"):
        hashes = {tidemark("state", "hash", name, uid, "--json").ok().json["sha256"] for name in ("till", "till_2")}
        assert len(hashes) == 1, uid
    replayed = tidemark("checkpoint", "replay", "till_2", "chk-3", "--json").ok().json
    assert [r["equal"] for r in replayed] == [True, True], "executed by Spark, the import's plan comes to the same"
    tidemark("compact", "till_2", "--full", "--json").ok()
    assert tidemark("run", "till_2", "--json").ok().json["records"] == 0
    told = tidemark("verify", "till_2", "--content", "--json").ok().json
    assert told["restore_points"] == ["chk-3", "chk-4", "chk-5", "timeline t1"]
