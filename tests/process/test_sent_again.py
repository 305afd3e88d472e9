"""Restores of a pipeline whose attempts send to a topic themselves: what they have sent, they have sent (D9, I8)."""

from tests.process.test_sending import SendingPipeline, ticks
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_preview import plan_restore
from tidemark.coordinator.recovery.restore_request import RestoreRequest


def test_a_restore_tells_what_attempts_have_sent() -> None:
    world = SendingPipeline(ticks())
    world.log.create("out", 1)
    for name in "abc":
        world.send(name)
        world.checkpoint()

    def again(*, restore_sinks: bool) -> tuple[str, ...]:
        asked = RestoreRequest(checkpoint=1, restore_sinks=restore_sinks).find_restore_point(world.coordinator)
        return plan_restore(
            Recovery(coordinator=world.coordinator, pipeline=world.pipeline), asked, world.pipeline
        ).sent_again

    assert (again(restore_sinks=True), again(restore_sinks=False)) == (("out",), ())
