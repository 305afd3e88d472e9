"""What renames.py renames. A new name that is not free in a file that uses it is reported as CONFLICT."""

MODULES: dict[str, str] = {
    "tidemark.coordinator.retention.collect_roots": "tidemark.coordinator.retention.root_set",
}

_NAMES = """
# claims, imports, retention
tidemark.model.retention.promotion_claims FateRecord PromotionClaim
tidemark.coordinator.records.claim_records Fates PromotionClaims
tidemark.model.checkpoint.object_keys fate_key promotion_claim_key
tidemark.coordinator.recovery.segment_importer Bringer SegmentImporter
tidemark.coordinator.recovery.segment_importer Brought SegmentImport
tidemark.cli.exports brought import_facts
tidemark.operations.import_ _bring _import_segment
tidemark.coordinator.retention.root_set look collect_roots
tidemark.coordinator.retention.erasure_search Found KeyOccurrences
tidemark.coordinator.retention.erasure_search waiting list_waiting_plans
tidemark.coordinator.retention.erasure_residue Remains ErasureResidue
tidemark.coordinator.retention.erasure_residue remains erasure_residue
tidemark.coordinator.retention.erasure_residue counted count_rows
tidemark.coordinator.retention.deletion_plan Judge DeletionPlanner
tidemark.coordinator.retention.deletion_plan listed list_files
tidemark.coordinator.retention.pins joined collect_reasons
tidemark.testing.twin.compute Judge GateFunction
tidemark.coordinator.records.states Void Subsumed
tidemark.coordinator.records.states Behind PromotionBlocked
tidemark.coordinator.records.objects encoded encode
tidemark.coordinator.records.objects decoded decode
tidemark.coordinator.records.tombstones released read_release
tidemark.coordinator.records.tombstones standing drop_withdrawn
tidemark.coordinator.records.checkpoint_counts tally count_checkpoints
tidemark.coordinator.recovery.promotion ended ended_timeline
tidemark.coordinator.recovery.savepoint_patch patched mark_patched
tidemark.coordinator.recovery.latest_valid newest_whole latest_valid
tidemark.coordinator.checkpoints.loop delivered record_delivery
tidemark.coordinator.checkpoints.loop undelivered list_undelivered
tidemark.coordinator.checkpoints.job extended extend_handle
tidemark.coordinator.checkpoints.job emitted write_emitted
tidemark.coordinator.checkpoints.reports reported record_report
tidemark.coordinator.plans.ranges recreated recreated_topic_loss
tidemark.coordinator.plans.ranges told describe_losses
tidemark.coordinator.plans.replay_ranges remaining list_remaining
tidemark.coordinator.plans.sink_inputs joined merge_sent
tidemark.operations.erasure ErasureTerms ErasureOptions
tidemark.operations.backfill BackfillTerms BackfillOptions
tidemark.operations.observability measure_punctuality measure_deadline
tidemark.operations.timelines superseded superseded_error
# model
tidemark.model.kinds.base.python known not_null
tidemark.model.kinds.base.python summed sum_exact
tidemark.model.kinds.base.sql expired expired_sql
tidemark.model.kinds.base.sql bounded bounded_sql
tidemark.model.kinds.base.sql checked checked_sql
tidemark.model.kinds.base.sql quoted quote
tidemark.model.kinds.base.sql filtered filter_sql
tidemark.model.kinds.base.sql limited limited_schema
tidemark.model.kinds.base.kind annotated annotate
tidemark.model.checkpoint.checkpoint_facts Punctuality DeadlineStatus
tidemark.model.checkpoint.messages refused record_refused
tidemark.model.checkpoint.openlineage_events attempted attempt_of
tidemark.model.retention.deletion grouped group_by_reason
tidemark.model.retention.shared_state unknown registry_error
tidemark.model.state.evolution compared compare_schemas
tidemark.model.state.evolution evolved evolve_schema
# engine
tidemark.engine.read.batch_reader Taker BatchReader
tidemark.engine.read.observed_batch_stats PassingTally ObservedBatchStats
tidemark.engine.read.batch_stats counted count_batch
tidemark.engine.read.batch_stats misread inexact_read
tidemark.engine.read.broadcast_states joined join_states
tidemark.engine.read.broadcast_states copied copy_tables
tidemark.engine.read.frames handed_over as_argument
tidemark.engine.read.frames keyed with_keys
tidemark.engine.read.frames decoded decode
tidemark.engine.read.frames folded fold
tidemark.engine.state.resolve_sql resolved resolve_state
tidemark.engine.state.resolve_sql compacted compact_rows
tidemark.engine.state.resolve_sql finished finish_rows
tidemark.engine.state.level_merge _Gap _NoFence
tidemark.engine.session.session packed package_zip
tidemark.engine.session.class_archive ended stop_driver
tidemark.engine.session.job_result answer write_result
tidemark.engine.session.spark_errors translated translate_spark_errors
tidemark.engine.process.process_operator shipped pickle_by_value
tidemark.engine.process.process_operator processed run_process
tidemark.engine.process.process_operator lacking rows_to_send
tidemark.engine.process.process_worker rebuilt rebuild_error
tidemark.engine.process.subtasks spread partition_by_task
# processing, SQL
tidemark.processing.live Settled StateResult
tidemark.processing.live settled settle
tidemark.processing.process_records Placed PositionedRecord
tidemark.processing.processor failed function_error
tidemark.sql.initial_state typed typed_columns
tidemark.sql.resolve filled bind_clocks
tidemark.portable_sql.custom_aggregate substituted substitute_names
tidemark.portable_sql.expressions typed type_expression
tidemark.portable_sql.syntax parsed parse
# readers, storage, tables, transfer
tidemark.readers.duckdb_session told translate_duckdb_errors
tidemark.readers.duckdb_session opened open_connection
tidemark.readers.duckdb_session asking open_query_runner
tidemark.readers.duckdb_session Ask QueryRunner
tidemark.readers.duckdb_session streamed stream_batches
tidemark.readers.sql_views written quote_name
tidemark.readers.sql_views answer run_statement
tidemark.readers.state_diff packed to_rows
tidemark.readers.state_diff compared compare_states
tidemark.readers.state_hash differing first_differences
tidemark.storage.s3_errors mapped translate_s3_errors
tidemark.storage.s3_errors body_told translate_body_errors
tidemark.storage.s3_folder opened open_folder
tidemark.storage.s3_folder streamed stream_object
tidemark.storage.local_store located join_path
tidemark.storage.local_store Located WarehousePath
tidemark.storage.local_store reached open_warehouse
tidemark.storage.local_store filled stage_folder
tidemark.storage.parquet_folder appearing create_atomically
tidemark.tables.delta_reader refused unusable_table
tidemark.tables.delta_tables parsed parse_type
tidemark.tables.log_repair mending translate_disk_errors
tidemark.tables.row_groups holding select_row_groups
tidemark.telemetry.statsd scoped gauge_name
tidemark.transfer.export_folder ordered order_columns
tidemark.transfer.import_folder damaged damaged_export
# testing, API, CLI, the rest
tidemark.testing.twin.compute refused list_refused
tidemark.testing.twin.compute copied copy_tables
tidemark.testing.twin.entries mapped map_rows
tidemark.testing.twin.fold finished finish
tidemark.testing.twin.fold folded fold
tidemark.testing.twin.merge compacted compact_rows
tidemark.testing.twin.merge resolved resolve_rows
tidemark.testing.twin.process processed run_process
tidemark.api.lookups advising add_advice
tidemark.cli.output when to_datetime
tidemark.cli.timeline drawn draw_tree
tidemark.environment lazily lazy_proxy
tidemark.redaction redacted redact
"""

# module, class, member, new name, receivers (full match of the receiver's text), files (search in the path)
_MEMBERS = """
tidemark.coordinator.recovery.savepoint_patch Patcher _bring _import_segment self ^$
tidemark.model.checkpoint.metrics Standing punctuality deadline s|found ^include/tidemark/operations/observability
tidemark.coordinator.checkpoints.coordinator CheckpointCoordinator fates promotion_claims c|coordinator|.*\\.coordinator ^(include|tests)/
tidemark.coordinator.recovery.segment_importer SegmentImporter bring import_segment bringer|importer|SegmentImporter\\(.*\\) ^(include|tests)/
tidemark.coordinator.recovery.import_state Importing brought segment_import wanted|importing ^(include|tests)/
tidemark.coordinator.retention.erasure_search Searcher look search_keys searcher|.*[sS]earcher(\\(.*\\))? ^(include|tests)/
tidemark.operations.erasure ErasureReport remains residue report|first|.*report ^(include|tests)/
tidemark.engine.read.batch_reader BatchReader taken read taker|reader|BatchReader\\(.*\\) ^(include/tidemark/engine|tests/process/twins|tests/support|benchmarks)
tidemark.engine.read.observed_batch_stats ObservedBatchStats told result passing|tally_of ^(include/tidemark/engine|tests|benchmarks)
tidemark.model.schema.operator_schema StoredField kept process_kind f|field ^include/tidemark/(sql|model/kinds|processing|testing/twin|engine)/
tidemark.model.schema.operator_schema StoredField folded fold_kind f|field ^include/tidemark/(sql|model/kinds|engine|testing/twin)/
"""

# file, local name, new name
WORDS: list[tuple[str, str, str]] = [
    ("include/tidemark/coordinator/recovery/segment_importer.py", "brought", "rows"),
    ("include/tidemark/coordinator/recovery/import_state.py", "_brought", "_imported_state"),
    ("include/tidemark/coordinator/recovery/savepoint_patch.py", "brought", "imported"),
    ("include/tidemark/coordinator/recovery/savepoint_patch.py", "bringer", "importer"),
    ("include/tidemark/operations/import_.py", "brought", "imported"),
    ("include/tidemark/coordinator/recovery/import_state.py", "brought", "table_id"),
    ("include/tidemark/engine/compute.py", "taker", "reader"),
]

# file, text, replacement: words that quote an old name, and lines that got too long
TEXTS: list[tuple[str, str, str]] = [
    (
        "include/tidemark/coordinator/recovery/savepoint_patch.py",
        "coordinator: of the pipeline; its listener is called at the steps of `SegmentImporter`, of kind `patch`, as well.",
        "coordinator: of the pipeline; its listener is also called at the steps of `SegmentImporter`, of kind `patch`.",
    ),
    (
        "include/tidemark/model/state/evolution.py",
        """`compare_schemas` says what carries over and what does not fit; `evolve_schema` returns the stored schema of the next checkpoint,
including how to read the tables of earlier ones. Nothing is rewritten: readers map rows (`sql.resolve`), and a
later compaction writes them in the new columns.""",
        """`compare_schemas` says what carries over and what does not fit; `evolve_schema` returns the stored schema of the next
checkpoint, including how to read the tables of earlier ones. Nothing is rewritten: readers map rows (`sql.resolve`),
and a later compaction writes them in the new columns.""",
    ),
    (
        "include/tidemark/readers/sql_views.py",
        """    A query reads only the parts of the files that it needs. Unlike `run_statement`, the connection can do everything that
    DuckDB can.""",
        """    A query reads only the parts of the files that it needs. Unlike `run_statement`, the connection can do everything
    that DuckDB can.""",
    ),
    ("include/tidemark/coordinator/retention/erasure_search.py", "`collect_roots.look`", "`collect_roots`"),
    ("tests/simulation/test_simulation.py", '"  Behind("', '"  PromotionBlocked("'),
    ("docs/adr/0011-generated-code-outlives-sessions.md", "`engine.frames.handed_over`", "`frames.as_argument`"),
    ("docs/adr/0016-one-path-to-disk-and-bucket.md", "`located(warehouse, ...)`", "`join_path(warehouse, ...)`"),
]

NAMES = {(m, o): n for m, o, n in (line.split() for line in _NAMES.split("\n") if line.strip() and not line.startswith("#"))}
MEMBERS = {(m, c, o): (n, r, f) for m, c, o, n, r, f in (line.split() for line in _MEMBERS.split("\n") if line.strip() and not line.startswith("#"))}
