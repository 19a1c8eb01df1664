"""What vulture takes for dead and is not, by reason.  `python -m vulture` reads this file with the sources."""

# The public API (tests/support/public_api.txt).
_.__getattr__
_.__dir__
_.filter_exists
_.register_table
_.insert_overwrite
_.plot
_.read_blobs
_.unschedule_compaction
_.log_compact
_.unschedule_clustering
_.expired_partitions
_.rewrite_record_keys
_.add_constraint
_.drop_constraint
_.record_index
_.to_dict
_.amplification
_.to_polars
_.to_dataset
_.to_duckdb
_.replace_schema
_.get_fragments
_.partition_expression
_.dataset_schema
_.forget_memory
_.check_merger
_.check_time_generator
_.check_compaction_strategy
_.check_clustering_strategy
_.when_matched_update
_.when_matched_update_all
_.when_matched_delete
_.when_not_matched_insert
_.when_not_matched_insert_all
_.when_not_matched_by_source_update
_.when_not_matched_by_source_delete

# Called by Spark, by Arrow, by notebooks and by Python: their protocols.
_.get_type_name
_.normalize_path
_.open_input_file
_.open_input_stream
_.get_file_info
_.get_file_info_selector
_.create_dir
_.delete_dir
_.delete_dir_contents
_.delete_file
_.delete_root_dir_contents
_.copy_file
_.move
_.open_append_stream
_.open_output_stream
_.signum
_.__annotations__
_.inflight_tasks
_.operation_id
_.pushFilters
_.initialOffset
_.latestOffset
_.getDefaultReadLimit
_.prepareForTriggerAvailableNow
_.seekable
_.readall
_.readinto
_.dst
_.fromutc
_._repr_html_

# Fields of the timeline's documents, which their Avro schemas read and write by name.
_.total_log_files
_.hoodie_write_stat
_.partition_to_compaction_write_stats
_.hoodie_compaction_metadata
_.hoodie_inflight_replace_metadata
_.is_bootstrap_base_file
_.bootstrap_partition_metadata
_.bootstrap_file_path
_.strategy_class_name
_.preserve_hoodie_metadata
_.total_scan_time
_.total_create_time
_.total_upsert_time
_.log_version
_.log_offset
_.min_event_time
_.max_event_time
_.runtime_stats
_.total_log_files_compacted
_.total_log_read_time_ms
_.temp_path
_.num_updates
_.compactor_class_name
_.index_upto_instant
_.start_restore_time
_.hoodie_restore_metadata
_.restore_instant_info
_.latest_base_instant
_.rollback_log_files
_.log_files_from_failed_commit
_.instants_rollback
_.savepointed_by
_.savepointed_at
_.total_log_records
_.total_updated_records_compacted
_.total_log_blocks
_.total_corrupt_log_block
_.total_rollback_blocks

# Names that the format has, written by others.
_.INSERT_PREPPED
_.UPSERT_PREPPED
_.BULK_INSERT_PREPPED
_.LZO
_.LZ4
_.BZIP2
_.MIN_RECORD_KEY
_.MAX_RECORD_KEY
_.BLOOM_FILTER_TYPE
_.APPEND
_.ONE
_.TWO
_.THREE
_.FOUR
_.FIVE
_.SEVEN
_.is_base
_.NUM_OR_TIME
_.UNBOUNDED

# Single steps and plain forms with which tests compare the fast ones.
_.murmur2
_.compact_metadata_table
_.runs

# Doubles that tests of ours and of others use.
_.ReplayEnvironment
_.step_ms
_.stall_ms
_.write_count

# Fields that declare an option; its value is read from the options before there are settings.
_.force

# Called by the standard library: http.server and urllib.
_.do_GET
_.log_message
_.redirect_request

# Still to be looked at: this part may only shrink.
_.commit_metadata_prefix
