"""The case of `DeltaSink`: rows that the newest manifest names."""

from tests.unit.sinks.sink_cases import Arrived, SinkCase, SinkPipeline
from tidemark import DeltaSink


def arrived(line: SinkPipeline) -> Arrived:
    table = line.made[-1].sinks["alerts"]
    return [
        (
            f"ticks/t1/{done.plan.name}/alerts/ticks-0-{row['_offset']}-{'.'.join(map(str, row['_path']))}",
            {"who": row["who"], "at": row["at"].isoformat(), "n": row["n"]},
        )
        for done in line.made
        for row in line.held(table, done.id)
    ]


CASES = [SinkCase(sink=DeltaSink("alerts"), arrived=arrived)]
