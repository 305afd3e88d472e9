"""The walk: seeded, one verb after the other, some of which die halfway or are overtaken by others."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random

from tests.deliveries.delivery_oracle import At, DeliveryOracle, Erased, Key, Made, Record, Table
from tests.deliveries.delivery_pipeline import P0, P1, TOPIC, Broker, DeliveryPipeline
from tests.support.crashes import CrashAt, Killed
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.loop import CheckpointLoop, is_live, list_undelivered, record_delivery
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.plans.sink_inputs import Undelivered
from tidemark.coordinator.records.states import Promoted, PromotionBlocked, Restored
from tidemark.coordinator.records.timelines import Erasures
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_preview import RestorePlan, plan_restore
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.coordinator.retention.key_erasure import Eraser, ErasureRequest
from tidemark.coordinator.retention.sweep import Sweeper
from tidemark.declare.retention import Retention
from tidemark.errors import BrokerError, ConflictError, DataLostError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.messages import Message, commit_id, emitted_rows
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.offsets import OffsetCoverage
from tidemark.ports import PlanRequest
from tidemark.sinks.known_sinks import stored_sink
from tidemark.sinks.sink import Services
from tidemark.testing.twin.memory import MemoryCompute

KINDS = ("kafka", "kafka", "topic", "delta")


class DeliveryWalk:
    """One walk."""

    def __init__(self, seed: int) -> None:
        self.world, self.rng, self.oracle = DeliveryPipeline(), Random(seed), DeliveryOracle()
        self.mixes = seed % 2 == 1
        self.trace: list[str] = []
        self.number, self.serial = 0, 0
        self.attempted: dict[int, list[tuple[str, Message]]] = {}
        self.counts: Counter[str] = Counter()
        self.delivering = False

    def steps(self, count: int) -> "DeliveryWalk":
        """So many verbs; then everything is sent that waits, and nothing may be missing."""
        verbs: dict[Callable[[], None], int] = {
            self.send: 8,
            self.advance: 13,
            self.deliver: 7,
            self.restore: 4,
            self.fork: 3,
            self.promote: 4,
            self.close: 1,
            self.redeclare: 4,
            self.recreate: 1,
            self.park: 1,
            self.erase: 1,
            self.sweep: 2,
            self.drain: 1,
        }
        # Half of the walks have a mixture of their own: what is rare in the others is frequent in one of them.
        often = {self.send, self.advance, self.deliver}
        factors = {verb: self.rng.choice((1, 2) if verb in often else (0, 1, 1, 4)) for verb in verbs}
        weights = [w * (factors[verb] if self.mixes else 1) for verb, w in verbs.items()]
        for _ in range(count):
            (verb,) = self.rng.choices(list(verbs), weights)
            self.note(verb.__name__)
            self.world.clock.advance(1000)
            verb()
            self.sync()
            assert self.world.coordinator.timelines.live() == self.oracle.live
        self.drain()
        return self

    def note(self, text: str) -> None:
        """A line of the trace."""
        self.trace.append(text)
        self.counts[text] += 1

    # Records and declarations

    def send(self) -> None:
        """Records into any partition; some have no account."""
        for _ in range(self.rng.randrange(1, 6)):
            tp, account = self.rng.choice((P0, P0, P1)), self.rng.choice(("a", "b", "c", None))
            self.serial += 1
            body = {"serial": self.serial} | ({"account": account} if account else {})
            at = self.world.log.append(tp, json.dumps(body).encode(), timestamp_ms=self.world.clock.now_ms())
            self.oracle.log[self._id(), tp.partition, at] = Record(self.serial, account)

    def redeclare(self) -> None:
        """The author changes sinks: another kind, another name, one out, one in, one swapped for the other's."""
        rng, before = self.rng, self.world.declared
        names = rng.sample("abc", 2)
        old = [sink for _, sink in (*before.sinks, ("", None))]
        first, second = old[0], old[1] if len(before.sinks) > 1 else None
        change = rng.randrange(6)
        if change == 0 and first and second:
            first, second = (first[0], second[1]), (second[0], first[1])
        elif change == 1 and first:
            first = (rng.choice(KINDS), first[1])
        elif change == 2:
            first = None if first else (rng.choice(KINDS), names[0])
        elif change == 3:
            second = None if second else (rng.choice(KINDS), names[1])
        else:
            first, second = ((rng.choice(KINDS), name) for name in names)
        if first and second and first[1] == second[1]:
            second = None
        sinks = (("teller", first), ("second", second))
        # An operator that is declared no more loses its state; without a sink it stays, most of the time.
        more = before.more if rng.random() < 0.7 else not before.more
        self.world.declare(sinks=sinks if second or rng.random() < 0.5 else sinks[:1], more=more)
        self.note(f"  {[s for _, s in self.world.declared.sinks]} more={more}")

    def recreate(self) -> None:
        """The topic is deleted and created under the same name."""
        self.world.log.create(TOPIC, 2)

    def park(self) -> None:
        """A partition is read no more, or again."""
        whole = len(self.world.declared.partitions) > 1
        self.world.declare(partitions=frozenset({P0}) if whole else frozenset({P0, P1}))

    # Checkpoints

    def advance(self, timeline: str | None = None) -> None:
        """A checkpoint on the live timeline, or on a fork; it may die at any of its steps, or the broker may."""
        rng = self.rng
        name = timeline or rng.choice([self.oracle.live] * 3 + self._open())
        crash = CrashAt(rng.choice((None, None, None, rng.randrange(1, 70))))
        broker = Broker(self._attempt, accepts=rng.choice((None, None, None, rng.randrange(4))))
        at_most, accept = rng.choice((None, None, 1, 2)), rng.random() < 0.5
        for _ in range(6):
            ask = PlanRequest(origin="walk", max_records=at_most, accept_loss=accept, allow_non_restored_state=True)
            try:
                self._line(name, crash, broker).run_once(ask)
                break
            except DataLostError:
                accept = True
            except (Killed, BrokerError) as error:
                self.note(f"  {name} {type(error).__name__}")
                break
        self.sync()

    def _line(self, name: str, crash: CrashAt, broker: Broker) -> CheckpointLoop:
        return CheckpointLoop(
            coordinator=self._coordinator(crash),
            pipeline=self.world.pipeline,
            execute=lambda attempt: self.world.job(crash, broker).execute(attempt),
            timeline=name,
        )

    def sync(self, *, compares: bool = True) -> list[Checkpoint]:
        """What was completed since, by whatever verb, becomes known to the oracle, and is compared with it."""
        new: list[Checkpoint] = []
        c = self.world.coordinator
        for name in [n for n, line in self.oracle.lines.items() if not line.closed]:
            entry, found = c.head(name).entry, list[Checkpoint]()
            while isinstance(entry, Checkpoint) and entry.id not in self.oracle.made:
                found.append(entry)
                entry = c.timelines.entry(name, entry.plan.slot.sequence - 1)
            for checkpoint in reversed(found):
                self._completed(checkpoint)
                new.append(checkpoint)
                if compares:
                    self.compare(checkpoint)
        return new

    def _completed(self, found: Checkpoint) -> None:
        plan = found.plan
        self.oracle.complete(
            Made(
                id=plan.id,
                timeline=plan.slot.timeline,
                parent=plan.parent,
                ranges={(plan.topic_ids[tp.topic], tp.partition): (r.start, r.end) for tp, r in plan.ranges.items()},
                sinks={uid: (table.name, table.kind) for uid, table in plan.sinks.items()},
                erasures=plan.erasures,
                named=any("account" in dict(table.columns) for table in plan.sinks.values()),
            )
        )
        self.note(f"  chk-{plan.id} on {plan.slot} after {plan.parent}: {self.oracle.made[plan.id].ranges}")
        for key, message in self._keyed(self.attempted.pop(plan.id, []), plan):
            self.oracle.count(key, message.id)

    def _keyed(self, sent: list[tuple[str, Message]], plan: CheckpointPlan) -> Iterator[tuple[Key, Message]]:
        for topic, message in sent:
            yield (topic.removeprefix("out-"), *self._row(message)), message

    def _row(self, message: Message) -> tuple[int, int]:
        return int(json.loads(message.value)["serial"]), int(message.id.rsplit("-", 1)[1])

    def _attempt(self, topic: str, message: Message) -> None:
        """An attempt sends: its timeline must be live, and the checkpoint may never be completed."""
        _, timeline, name, *_ = message.id.split("/")
        assert timeline == self.oracle.live, f"an attempt of {timeline} has sent {message.id}"
        self.attempted.setdefault(int(name.removeprefix("chk-")), []).append((topic, message))

    # Deliveries

    def deliver(self) -> None:
        """Sends what waits, or some of it: the broker may fail, the process may die, others may go on meanwhile."""
        rng = self.rng
        broker = Broker(lambda topic, message: None, accepts=rng.choice((None, None, rng.randrange(6))))
        at_most, dies = rng.choice((None, None, 1)), rng.random() < 0.1
        overtaken = rng.choice((None, None, None, self.advance, self.restore, self.promote))
        for due in list_undelivered(self.world.coordinator)[:at_most]:
            if overtaken is not None and not self.delivering:
                self.delivering, verb, overtaken = True, overtaken, None
                self.note(f"  overtaken by {verb.__name__}")
                verb()
                self.sync()
                self.delivering = False
            if not is_live(self.world.coordinator, due):
                self.note("  overtaken")
                return
            try:
                self._deliver(due, broker, dies=dies)
            except BrokerError:
                return
            if dies:
                return

    def _deliver(self, due: Undelivered, broker: Broker, *, dies: bool = False) -> None:
        plan, name = due.checkpoint.plan, due.table.name
        sink = stored_sink(due.table)
        assert sink is not None

        def took(topic: str, message: Message) -> None:
            ((key, _),) = self._keyed([(topic, message)], plan)
            self.oracle.unrecorded.setdefault((plan.id, name), set()).add(key)
            self.oracle.arrive(key, plan.id, message.id)

        rows = [row for row in self.world.rows(due.table, plan.id) if due.is_due(row)]
        broker = replace(broker, took=took)
        sent = sink.write(emitted_rows(plan, due.table, rows), commit_id(plan), Services(kafka=broker))
        self.note(f"  {plan.name} sends {sent} to {name}{' and dies' if dies else ''}")
        if not dies:
            record_delivery(self.world.coordinator, replace(due, records=sent))
            self.oracle.unrecorded.pop((plan.id, name), None)

    def drain(self) -> None:
        """All that waits is sent: then nothing of the live line may be missing, and nothing may wait."""
        for due in list_undelivered(self.world.coordinator):
            self._deliver(due, Broker(lambda topic, message: None))
        assert not list_undelivered(self.world.coordinator)
        owed = self.oracle.owed()
        assert not owed, f"never sent: {owed}"

    # Timelines

    def restore(self) -> None:
        """To any checkpoint that is kept, of any timeline; sinks stay or go back; it may die between its two puts."""
        oracle, rng, c = self.oracle, self.rng, self.world.coordinator
        to = self._kept(of_forks=rng.random() < 0.2)
        if to is None:
            return
        back = rng.random() < 0.3
        restore_point = RestorePoint(checkpoint=to, restore_sinks=back, allow_non_restored_state=True)
        recovery = Recovery(coordinator=c, pipeline=self.world.pipeline)
        plan = plan_restore(recovery, restore_point, self.world.pipeline)
        tables = dict(oracle.made[to.id].tables) if back else oracle.kept(to.id)
        self._compare_words(plan, to.id, tables, back=back)
        self.note(f"  to chk-{to.id}, back={back}: {dict(plan.sinks)}")
        request = f"r{self._next()}"
        if rng.random() < 0.25:
            point = CrashAt(rng.choice((2, 3)))
            dying = Recovery(coordinator=self._coordinator(point), pipeline=self.world.pipeline)
            with suppress(Killed):
                dying.restore(restore_point, request)
            self.note("  died")
            if rng.random() < 0.4:
                self._abandoned(to.id, tables)
                return
            if not back and not self.delivering and rng.random() < 0.5:
                # The old timeline is live until somebody asks for the restore again.
                self.delivering = True
                self.advance(oracle.live)
                self.deliver()
                self.delivering = False
        done = recovery.restore(restore_point, request)
        assert isinstance(done, Restored)
        begun = done.genesis.timeline
        for name, offsets in plan.resent.items():
            oracle.announce(name, self._offsets(offsets))
        oracle.begin(begun, to.id, tables)
        oracle.close(begun)
        oracle.due = {name: {x.id for x in found} for name, found in plan.due.items()}
        oracle.lost |= {(x.id, name) for name, found in plan.gone.items() for x in found}

    def _abandoned(self, to: int, tables: Mapping[str, Table]) -> None:
        """Nobody repeats the restore: the timeline is one that is not live."""
        for name in self.world.coordinator.timelines.names():
            if name not in self.oracle.lines:
                self.oracle.begin(name, to, tables)

    def _compare_words(self, plan: RestorePlan, to: int, tables: Mapping[str, Table], *, back: bool) -> None:
        live, old = self.oracle.tables(self.oracle.live), self.oracle.made[to].tables
        for name, words in plan.sinks.items():
            if name in tables and name in live and name in old:
                if "keeps its rows" in words:
                    assert tables[name].rows == live[name].rows
                elif "goes back to its rows" in words:
                    assert tables[name].rows == old[name].rows
                else:
                    assert "continues with its rows" in words
                    assert tables[name].rows == live[name].rows | old[name].rows
            if "is sent again" in words:
                assert name in plan.resent
        assert {t.removeprefix("out-") for t in plan.sent_again} == {*plan.resent}

    def fork(self) -> None:
        """From any checkpoint that is kept, of any timeline, forks too."""
        to = self._kept(of_forks=self.rng.random() < 0.4)
        if to is not None:
            name = f"f{self._next()}"
            recovery = Recovery(coordinator=self.world.coordinator, pipeline=self.world.pipeline)
            recovery.fork(RestorePoint(checkpoint=to, allow_non_restored_state=True), name)
            self.oracle.begin(name, to.id)
            self.note(f"  {name} at chk-{to.id}")

    def promote(self) -> None:
        """Any timeline that is neither live nor closed, with or without what it emitted."""
        rng, names = self.rng, self._open()
        if not names:
            return
        name, send, discard = rng.choice(names), rng.random() < 0.5, rng.random() < 0.5
        if rng.random() < 0.5:
            self.advance(name)
            self.sync()
        crash = CrashAt(rng.choice((None, None, None, 2, 4)))
        try:
            done = Promotion(coordinator=self._coordinator(crash)).promote(name, discard=discard, send=send)
        except Killed:
            if self.world.coordinator.timelines.live() != name:
                return
            done = Promotion(coordinator=self.world.coordinator).promote(name)
        if isinstance(done, PromotionBlocked):
            return
        assert isinstance(done, Promoted)
        self.note(f"  {name}, send={send}")
        self.oracle.promoted(name, send=send)

    def close(self) -> None:
        """A fork ends, unless something of it is under way."""
        names = self._open()
        if names:
            name = self.rng.choice(names)
            try:
                Ending(coordinator=self.world.coordinator).close(name)
            except ConflictError:
                return
            self.oracle.lines[name].closed = True

    # Retention

    def sweep(self) -> None:
        """Lets go what `keep_last` does not keep and nothing pins."""
        c = self.world.coordinator
        Sweeper(
            coordinator=c, files=self.world.files, rule=Retention.keep_last(self.rng.randrange(1, 4)), grace_ms=0
        ).sweep()
        for name, record in of_checkpoints(c.objects).items():
            number = int(name.removeprefix("chk-"))
            if record.confirmed:
                self.oracle.made[number] = replace(self.oracle.made[number], released=True)

    def erase(self) -> None:
        """A key of an operator; records that come later count."""
        uid, account = self.rng.choice(("accounts", "teller")), self.rng.choice("abc")
        c = self.world.coordinator
        asked = ErasureRequest(uid=uid, key=(account,), owner="walk")
        Eraser(
            coordinator=c,
            tables=self.world.tables,
            files=self.world.keys,
            logs=self.world.files,
            request=asked,
            key=(account,),
        ).erase()
        published = self.sync(compares=False)
        erasures = Erasures(c.objects)
        for record in erasures.until(erasures.newest())[len(self.oracle.erased) :]:
            assert record.reached is not None
            made, at = frozenset(self.oracle.made), frozenset(self._offsets(record.reached))
            self.oracle.erase(Erased(uid, account, made, at))
        for found in published:
            self.compare(found)

    # Comparisons

    def compare(self, found: Checkpoint) -> None:
        """State, dead letters and Delta sinks of a checkpoint."""
        oracle, world = self.oracle, self.world
        for uid in ("accounts", "teller"):
            compute = world.job(CrashAt(None), Broker(self._attempt)).compute
            assert isinstance(compute, MemoryCompute)
            rows = compute.resolve(found, uid)
            wanted = oracle.counts(found.id, uid)
            state = {key[0]: (row["payments"], row["serials"]) for key, row in rows.items()}
            assert state == {a: (len(s), sum(s)) for a, s in wanted.items()}, f"state of {uid} at chk-{found.id}"
        ack = found.ack("accounts")
        assert ack is not None
        values = [r["value"] for r in world.tables.rows(ack.dead_letters)]
        letters = [json.loads(v)["serial"] for v in values if isinstance(v, bytes)]
        assert len(letters) == len(values), f"a dead letter without its bytes at chk-{found.id}"
        assert sorted(letters) == oracle.letters(found.id), f"dead letters at chk-{found.id}"
        for table in found.sinks.values():
            if table.kind == "delta":
                held = [(r["serial"], *r["_path"]) for r in world.rows(table)]
                assert len(held) == len(set(held)), f"a row of {table.name} is there twice at chk-{found.id}"
                assert set(held) == oracle.made[found.id].tables[table.name].rows, f"{table.name} at chk-{found.id}"

    # Choices

    def _kept(self, *, of_forks: bool = False) -> Checkpoint | None:
        found = [n for n, made in self.oracle.made.items() if not made.released]
        if of_forks:
            beside = {n for name in self._open() for n in self.oracle.beside(name)}
            found = [n for n in found if n in beside] or found
        return self.world.coordinator.checkpoint(self.rng.choice(found)) if found else None

    def _open(self) -> list[str]:
        return [n for n, line in self.oracle.lines.items() if not line.closed and n != self.oracle.live]

    def _coordinator(self, crash: CrashAt) -> CheckpointCoordinator:
        return replace(self.world.coordinator, listener=crash)

    def _offsets(self, of: OffsetCoverage) -> Iterator[At]:
        for tp, ranges in of.by_id.items():
            for r in ranges:
                yield from ((tp.topic, tp.partition, offset) for offset in range(r.start, r.end))

    def _id(self) -> str:
        return self.world.log.topic_ids((TOPIC,))[TOPIC]

    def _next(self) -> int:
        self.number += 1
        return self.number
