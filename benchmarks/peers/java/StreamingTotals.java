import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.from_json;

import java.io.File;
import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.CommitLog;
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog;
import org.apache.spark.sql.execution.streaming.state.RocksDBFileManager;
import org.apache.spark.sql.streaming.DataStreamWriter;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.Trigger;

/**
 * A Structured Streaming query that keeps count, sum and maximum per key in the state store, and writes the new row of
 * every key that changed to a Delta table: appended, or merged by key. It takes what the topic holds and ends.
 */
public final class StreamingTotals {
    private StreamingTotals() {}

    /** One record; a null amount deletes the key. */
    public static class Change implements Serializable {
        private String key;
        private Long amount;
        private Timestamp at;
        private long offset;

        public String getKey() { return key; }
        public void setKey(String value) { key = value; }
        public Long getAmount() { return amount; }
        public void setAmount(Long value) { amount = value; }
        public Timestamp getAt() { return at; }
        public void setAt(Timestamp value) { at = value; }
        public long getOffset() { return offset; }
        public void setOffset(long value) { offset = value; }
    }

    /** What is remembered per key. */
    public static class Total implements Serializable {
        private long updates;
        private long amount;
        private long lastAt;

        public long getUpdates() { return updates; }
        public void setUpdates(long value) { updates = value; }
        public long getAmount() { return amount; }
        public void setAmount(long value) { amount = value; }
        public long getLastAt() { return lastAt; }
        public void setLastAt(long value) { lastAt = value; }
    }

    /** A key's new row, and the offset that made it; keys do not move between partitions. */
    public static class Result implements Serializable {
        private String key;
        private long updates;
        private long amount;
        private long lastMillis;
        private boolean deleted;
        private long changed;

        public String getKey() { return key; }
        public void setKey(String value) { key = value; }
        public long getUpdates() { return updates; }
        public void setUpdates(long value) { updates = value; }
        public long getAmount() { return amount; }
        public void setAmount(long value) { amount = value; }
        public long getLastMillis() { return lastMillis; }
        public void setLastMillis(long value) { lastMillis = value; }
        public boolean getDeleted() { return deleted; }
        public void setDeleted(boolean value) { deleted = value; }
        public long getChanged() { return changed; }
        public void setChanged(long value) { changed = value; }
    }

    /** One run. Options: bootstrap, topic, table, checkpoint, sink (append or merge). */
    public static void take(SparkSession spark, Map<String, String> options) throws Exception {
        Dataset<Row> read = spark.readStream().format("kafka")
            .option("kafka.bootstrap.servers", options.get("bootstrap"))
            .option("subscribe", options.get("topic"))
            .option("startingOffsets", "earliest")
            .option("kafka.fetch.max.wait.ms", "1")
            .option("kafka.max.poll.records", "50000")
            .option("kafka.max.partition.fetch.bytes", String.valueOf(8 << 20))
            .load();
        Dataset<Change> changes = read
            .select(col("key").cast("string").as("key"), col("offset"),
                from_json(col("value").cast("string"), "amount BIGINT, at TIMESTAMP", Map.of()).as("v"))
            .select("key", "offset", "v.amount", "v.at")
            .as(Encoders.bean(Change.class));
        FlatMapGroupsWithStateFunction<String, Change, Total, Result> fold = StreamingTotals::fold;
        Dataset<Row> rows = changes
            .groupByKey((MapFunction<Change, String>) Change::getKey, Encoders.STRING())
            .flatMapGroupsWithState(fold, OutputMode.Append(), Encoders.bean(Total.class),
                Encoders.bean(Result.class), GroupStateTimeout.NoTimeout())
            .selectExpr("key", "updates", "amount", "timestamp_millis(lastMillis) AS last_at", "deleted", "changed");
        DataStreamWriter<Row> writer = rows.writeStream().outputMode("append")
            .option("checkpointLocation", options.get("checkpoint"))
            .trigger(Trigger.AvailableNow());
        String table = options.get("table");
        if (options.get("sink").equals("merge")) {
            VoidFunction2<Dataset<Row>, Long> merge = (batch, id) -> merge(batch, table);
            writer.foreachBatch(merge).start().awaitTermination();
        } else {
            writer.format("delta").start(table).awaitTermination();
        }
    }

    /**
     * Keeps the newest versions of a query's state, and the batches from one on: what Spark's maintenance thread and the
     * next batch do where `minBatchesToRetain` is that small, by the same two methods, at once.
     */
    public static void purge(SparkSession spark, String checkpoint, int versions, long batch) throws IOException {
        for (File partition : new File(checkpoint, "state/0").listFiles(File::isDirectory)) {
            if (!partition.getName().startsWith("_")) {
                File scratch = Files.createTempDirectory("purge").toFile();
                RocksDBFileManager files = new RocksDBFileManager(partition.getPath(), scratch,
                    spark.sparkContext().hadoopConfiguration(), "lz4", "purge",
                    RocksDBFileManager.$lessinit$greater$default$6(), RocksDBFileManager.$lessinit$greater$default$7(),
                    RocksDBFileManager.$lessinit$greater$default$8());
                files.deleteOldVersions(versions, files.deleteOldVersions$default$2(),
                    files.deleteOldVersions$default$3());
                scratch.delete();
            }
        }
        // A query that begins again looks at the offsets of the batch before its last one, too.
        new OffsetSeqLog(spark, checkpoint + "/offsets").purge(batch - 1);
        new CommitLog(spark, checkpoint + "/commits").purge(batch - 1);
    }

    /** Forgets the batches after one, so that the next run begins behind it. */
    public static void forget(SparkSession spark, String checkpoint, long batch) {
        new OffsetSeqLog(spark, checkpoint + "/offsets").purgeAfter(batch);
        new CommitLog(spark, checkpoint + "/commits").purgeAfter(batch);
    }

    private static void merge(Dataset<Row> batch, String table) {
        batch.createOrReplaceTempView("changed_rows");
        batch.sparkSession().sql("MERGE INTO delta.`" + table + "` t USING changed_rows s ON t.key = s.key"
            + " WHEN MATCHED AND s.deleted THEN DELETE"
            + " WHEN MATCHED THEN UPDATE SET *"
            + " WHEN NOT MATCHED AND NOT s.deleted THEN INSERT *");
    }

    private static Iterator<Result> fold(String key, Iterator<Change> found, GroupState<Total> state) {
        List<Change> changes = new ArrayList<>();
        found.forEachRemaining(changes::add);
        changes.sort(Comparator.comparingLong(Change::getOffset));
        Total total = state.exists() ? state.get() : null;
        for (Change change : changes) {
            if (change.getAmount() == null) {
                total = null;
                continue;
            }
            if (total == null) {
                total = new Total();
                total.setLastAt(Long.MIN_VALUE);
            }
            total.setUpdates(total.getUpdates() + 1);
            total.setAmount(total.getAmount() + change.getAmount());
            total.setLastAt(Math.max(total.getLastAt(), change.getAt().getTime()));
        }
        Result result = new Result();
        result.setKey(key);
        result.setChanged(changes.get(changes.size() - 1).getOffset());
        result.setDeleted(total == null);
        if (total == null) {
            state.remove();
        } else {
            state.update(total);
            result.setUpdates(total.getUpdates());
            result.setAmount(total.getAmount());
            result.setLastMillis(total.getLastAt());
        }
        return Collections.singletonList(result).iterator();
    }
}
