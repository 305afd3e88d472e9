import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A resident Flink job that keeps count, sum and maximum per key in RocksDB. Flink's Kafka connector is not in the PyPI
 * package, so the source is a consumer of Kafka's own client, whose offsets are operator state. It reads up to the
 * offsets of the file `limits` in a control folder and says so in `reached-N`: that is how a measurement begins and
 * ends. The file `dump` asks for the state of all keys.
 *
 * <p>Arguments: bootstrap, topic, partitions, control folder, then key=value pairs of Flink's configuration.
 */
public final class FlinkTotals {
    private static final long DELETE = Long.MIN_VALUE;
    private static final int PARALLELISM = 2;

    private FlinkTotals() {}

    /** Runs until it is killed. */
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        for (int n = 4; n < arguments.length; n++) {
            String[] pair = arguments[n].split("=", 2);
            configuration.setString(pair[0], pair[1]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, configuration);
        TypeInformation<Tuple3<String, Long, Long>> change = Types.TUPLE(Types.STRING, Types.LONG, Types.LONG);
        MapStateDescriptor<String, String> none = new MapStateDescriptor<>("none", Types.STRING, Types.STRING);
        Gated updates = new Gated(arguments[0], arguments[1], Integer.parseInt(arguments[2]), arguments[3]);
        env.addSource(updates, "updates", change).uid("updates")
            .keyBy(record -> record.f0, Types.STRING)
            .connect(env.addSource(new Asked(arguments[3]), "asked", Types.STRING).setParallelism(1).uid("asked")
                .broadcast(none))
            .process(new Totals(arguments[3]), Types.STRING).uid("totals")
            .sinkTo(new DiscardingSink<>()).uid("none");
        env.execute("totals");
    }

    private static void write(Path path, String text) throws IOException {
        Path part = path.resolveSibling(path.getFileName() + ".part");
        Files.writeString(part, text);
        Files.move(part, path, StandardCopyOption.ATOMIC_MOVE);
    }

    /** Changes of a topic up to given offsets. */
    private static final class Gated extends RichParallelSourceFunction<Tuple3<String, Long, Long>>
            implements CheckpointedFunction {
        private final String bootstrap;
        private final String topic;
        private final int partitions;
        private final String control;
        private final Map<Integer, Long> offsets = new HashMap<>();
        private transient ListState<Tuple2<Integer, Long>> kept;
        private volatile boolean running = true;

        Gated(String bootstrap, String topic, int partitions, String control) {
            this.bootstrap = bootstrap;
            this.topic = topic;
            this.partitions = partitions;
            this.control = control;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            kept = context.getOperatorStateStore().getUnionListState(
                new ListStateDescriptor<>("offsets", Types.TUPLE(Types.INT, Types.LONG)));
            for (int p = own(); p < partitions; p += PARALLELISM) {
                offsets.put(p, 0L);
            }
            for (Tuple2<Integer, Long> found : kept.get()) {
                offsets.computeIfPresent(found.f0, (p, before) -> found.f1);
            }
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            List<Tuple2<Integer, Long>> all = new ArrayList<>();
            offsets.forEach((p, offset) -> all.add(Tuple2.of(p, offset)));
            kept.update(all);
        }

        @Override
        public void run(SourceFunction.SourceContext<Tuple3<String, Long, Long>> context) throws Exception {
            Path limits = Path.of(control, "limits");
            ObjectMapper json = new ObjectMapper();
            String done = "";
            try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
                while (running) {
                    JsonNode limit = Files.exists(limits) ? json.readTree(limits.toFile()) : null;
                    String asked = limit == null ? "" : limit.get("number").asText();
                    if (asked.equals(done)) {
                        Thread.sleep(2);
                        continue;
                    }
                    while (running && !reached(limit)) {
                        emit(context, consumer, limit, json);
                    }
                    done = asked;
                    write(Path.of(control, "reached-" + own()), done);
                }
            }
        }

        private int own() {
            return getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
        }

        private boolean reached(JsonNode limit) {
            return offsets.entrySet().stream().allMatch(e -> e.getValue() >= limit.get("" + e.getKey()).asLong());
        }

        private void emit(SourceFunction.SourceContext<Tuple3<String, Long, Long>> context,
                KafkaConsumer<byte[], byte[]> consumer, JsonNode limit, ObjectMapper json) throws Exception {
            List<Tuple3<String, Long, Long>> changes = new ArrayList<>();
            Map<Integer, Long> next = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                long end = limit.get("" + record.partition()).asLong();
                if (record.offset() >= end) {
                    consumer.seek(new TopicPartition(topic, record.partition()), end);
                    continue;
                }
                changes.add(change(record, json));
                next.put(record.partition(), record.offset() + 1);
            }
            synchronized (context.getCheckpointLock()) {
                changes.forEach(context::collect);
                offsets.putAll(next);
            }
        }

        private Tuple3<String, Long, Long> change(ConsumerRecord<byte[], byte[]> record, ObjectMapper json)
                throws IOException {
            String key = new String(record.key());
            if (record.value() == null) {
                return Tuple3.of(key, DELETE, 0L);
            }
            JsonNode value = json.readTree(record.value());
            long at = Instant.parse(value.get("at").asText()).toEpochMilli();
            return Tuple3.of(value.get("key").asText(), value.get("amount").asLong(), at);
        }

        private KafkaConsumer<byte[], byte[]> consumer() {
            Properties options = new Properties();
            options.put("bootstrap.servers", bootstrap);
            options.put("fetch.max.wait.ms", "1");
            options.put("max.poll.records", "50000");
            options.put("max.partition.fetch.bytes", String.valueOf(8 << 20));
            ByteArrayDeserializer bytes = new ByteArrayDeserializer();
            KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options, bytes, new ByteArrayDeserializer());
            consumer.assign(offsets.keySet().stream().map(p -> new TopicPartition(topic, p)).toList());
            offsets.forEach((p, offset) -> consumer.seek(new TopicPartition(topic, p), offset));
            return consumer;
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    /** Whoever writes a number to the file `dump` asks for all rows. */
    private static final class Asked implements SourceFunction<String> {
        private final String control;
        private volatile boolean running = true;

        Asked(String control) {
            this.control = control;
        }

        @Override
        public void run(SourceContext<String> context) throws Exception {
            Path dump = Path.of(control, "dump");
            String done = "";
            while (running) {
                String asked = Files.exists(dump) ? Files.readString(dump) : "";
                if (!asked.equals(done)) {
                    synchronized (context.getCheckpointLock()) {
                        context.collect(asked);
                    }
                    done = asked;
                }
                Thread.sleep(20);
            }
        }

        @Override
        public void cancel() {
            running = false;
        }
    }

    /** The state. */
    private static final class Totals
            extends KeyedBroadcastProcessFunction<String, Tuple3<String, Long, Long>, String, String> {
        private static final ValueStateDescriptor<Tuple3<Long, Long, Long>> TOTAL =
            new ValueStateDescriptor<>("total", Types.TUPLE(Types.LONG, Types.LONG, Types.LONG));
        private final String control;
        private transient ValueState<Tuple3<Long, Long, Long>> total;

        Totals(String control) {
            this.control = control;
        }

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(TOTAL);
        }

        @Override
        public void processElement(Tuple3<String, Long, Long> change, ReadOnlyContext context, Collector<String> out)
                throws Exception {
            if (change.f1 == DELETE) {
                total.clear();
                return;
            }
            Tuple3<Long, Long, Long> held = total.value();
            total.update(held == null ? Tuple3.of(1L, change.f1, change.f2)
                : Tuple3.of(held.f0 + 1, held.f1 + change.f1, Math.max(held.f2, change.f2)));
        }

        @Override
        public void processBroadcastElement(String asked, Context context, Collector<String> out) throws Exception {
            int own = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            Path rows = Path.of(control, "rows-" + own + ".csv");
            try (BufferedWriter writer = Files.newBufferedWriter(rows)) {
                context.applyToKeyedState(TOTAL, (key, state) -> {
                    Tuple3<Long, Long, Long> held = state.value();
                    writer.write(key + "," + held.f0 + "," + held.f1 + "," + held.f2 + "\n");
                });
            }
            write(Path.of(control, "dumped-" + own), asked);
        }
    }
}
