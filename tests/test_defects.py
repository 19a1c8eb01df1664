"""Each known defect of Hudi 1.0.2, 1.1.1 and 1.2.0 that loses, hides or damages data has a test of PyHudi's behaviour.

Each row: what goes wrong there, and the tests that PyHudi reads such tables right or never writes what triggers it.  A test is
named by its file under tests/ and its function; the rows are checked against the files, so that none is left behind.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

COMPONENT = "component/operations/test_defects.py"
INTEROP = "interop/test_hudi_defects.py"
SKIPPING = "interop/test_data_skipping.py"
SLICES = "unit/table/test_file_slices.py"

DEFECTS: dict[str, tuple[str, ...]] = {
    # Data files
    "null dates in columns with statistics: NullPointerException on merge-on-read upserts": (
        f"{COMPONENT}::test_null_dates_in_logs_with_column_statistics",
    ),
    "soft deletes with a date as ordering field: the write fails": (
        f"{COMPONENT}::test_deletes_store_the_values_that_hudi_compares",
    ),
    "COMPLEX with one key field: 1.0.2 and 1.1.1 store keys in another form than the table has, so that records exist twice": (
        "interop/test_key_forms.py::test_hudi_stores_a_record_twice_in_a_table_of_the_other_form",
        "component/operations/test_key_forms.py::test_writes_and_lookups_use_the_form_of_stored_keys",
    ),
    "keys that only log files hold are not found by SIMPLE and BLOOM: upserts insert them again, deletes find nothing": (
        "component/operations/test_keys_in_logs.py::test_keys_of_logs_are_updated_and_deleted",
    ),
    "a key deleted in a log and reinserted in another file group: an upsert changes both rows, so the key exists twice": (
        f"{INTEROP}::test_key_reinserted_in_another_partition",
        "component/operations/test_duplicate_key_locations.py::test_upsert_of_a_reinserted_key_updates_only_its_live_row",
    ),
    "an UPDATE overwrites what was committed between its read and its instant, without a conflict": (
        "interop/test_concurrent_statements.py::test_update_of_hudi_overwrites_a_commit_it_did_not_read",
        "simulation/test_concurrent_writers.py::test_update_reads_concurrent_commits",
        "component/operations/test_based_on.py::test_no_increment_is_lost_between_reading_and_writing",
    ),
    "partial updates after a late row: the columns that they lack come from the late row, for good": (
        "interop/test_partial_updates.py::test_a_partial_update_after_a_late_row",
        "component/operations/test_partial_updates.py::test_a_late_row_in_the_logs_gives_a_partial_update_nothing",
    ),
    "late rows under PartialUpdateAvroPayload move a record to a partition that its columns do not name": (
        "interop/test_payloads.py::test_records_that_move_to_another_partition",
        "component/operations/test_payloads.py::test_truth_table_of_records_that_move",
    ),
    "compactions by path merge without the ordering field: late rows win, and deletes with a value end them": (
        f"{INTEROP}::test_a_compaction_by_path_does_not_know_the_ordering_field",
    ),
    "decimal ordering fields: reads of logs with deletes fail": (
        f"{INTEROP}::test_deletes_with_decimals_as_ordering_values",
        f"{COMPONENT}::test_deletes_store_the_values_that_hudi_compares",
    ),
    "null elements of arrays: writes and copies fail": (f"{INTEROP}::test_nulls_in_arrays",),
    "merge on read without meta columns: reads of logs fail": (f"{INTEROP}::test_logs_without_meta_columns",),
    "HFile blocks in logs of data tables: reads fail": (
        f"{INTEROP}::test_hfile_blocks_in_logs",
        f"{INTEROP}::test_hfile_blocks_in_logs_without_meta_columns",
        "component/tasks/test_hfile_blocks.py::test_a_damaged_block_names_its_file",
    ),
    "timestamps as keys and partitions: bulk_insert writes another text than upsert": (
        f"{COMPONENT}::test_timestamps_in_keys_are_one_text_in_every_operation",
        "interop/test_cow_matrix.py::test_timestamps_as_keys",
    ),
    "lists in files with short decimals of a bulk_insert: the lists are lost when rows are copied": (
        f"{INTEROP}::test_lists_with_short_decimals_of_a_bulk_insert",
    ),
    "tinyint and smallint columns of a bulk_insert: reads fail": (f"{INTEROP}::test_bytes_and_shorts_of_a_bulk_insert",),
    "partition columns left out of files: a bulk_insert loses its rows, a delete stores nulls for the columns": (
        "interop/test_omitted_columns.py::test_a_bulk_insert_of_apache_hudi_loses_its_rows",
        "component/operations/test_omitted_columns.py::test_nulls_that_hudi_stored_do_not_count",
    ),
    # Columns by ids
    "clustering after a column was renamed: the column is null in every old row": (
        "interop/test_columns_by_ids.py::test_hudi_changes_columns_and_both_write",
        "component/operations/test_columns_by_ids.py::test_writes_and_services_keep_the_ids",
    ),
    "ids given twice: a column that is added shows values of one that was dropped": (
        "interop/test_columns_by_ids.py::test_schema_change_defects_of_hudi",
        "unit/records/schema_on_read/test_column_ids.py::test_an_id_that_was_given_twice_is_two_columns",
    ),
    "statistics of a renamed or retyped column are looked up by its new name: rows are missed, or the query fails": (
        "interop/test_columns_by_ids.py::test_schema_change_defects_of_hudi",
        "component/operations/test_columns_by_ids.py::test_filters_go_by_ids",
    ),
    "the history of columns is deleted before the next one is written": (
        "component/operations/test_columns_by_ids.py::test_schema_of_a_failed_schema_change_is_ignored",
        "component/operations/test_columns_by_ids.py::test_every_commit_carries_the_schema_and_the_history",
    ),
    "one write without ids ends reading by ids: renamed columns of old files are null": (
        "component/operations/test_columns_by_ids.py::test_columns_written_without_ids_keep_their_ids",
    ),
    "a change of columns takes no part in conflict checks: a writer lands with the columns of before": (
        "component/operations/test_columns_by_ids.py::test_schema_change_commits_during_a_write",
    ),
    "a field of a struct gets another type: the vectorized reader fails": (
        "component/operations/test_alter.py::test_rows_before_and_after_a_change",
        "spark/test_columns_by_ids.py::test_rows_on_spark_are_those_of_apache_hudi",
    ),
    "columns by ids: a renamed field of a struct is null in rows of older log files": (
        "interop/test_columns_by_ids.py::test_a_renamed_field_in_a_log_that_1_0_reads",
    ),
    "many changes of columns, one after the other: updates of rows fail": (
        "component/operations/test_alter.py::test_rows_are_changed_after_many_changes_of_columns",
    ),
    "bootstraps with column statistics fail after their commit, and leave partitions out": (
        "component/operations/test_bootstrap.py::test_a_table_is_made_written_and_serviced",
    ),
    "bootstraps with rows drop those of partitions whose values look like whole numbers": (
        "component/operations/test_bootstrap.py::test_a_table_is_made_written_and_serviced",
    ),
    "bootstraps that died: writes with a metadata table fail": (
        "interop/test_bootstrap.py::test_hudi_writes_after_a_failed_bootstrap_of_pyhudi",
        "simulation/test_bootstrap.py::test_failed_bootstrap_is_repeated",
    ),
    "bootstrapped tables: source files that changed are read as if they had not": (
        "component/operations/test_bootstrapped.py::test_files_that_changed_are_found_out",
    ),
    # Logs and merging
    "a delete without ordering value, then the key again: reads fail, or the old row comes back": (
        f"{INTEROP}::test_a_row_that_returns_after_a_delete",
        f"{COMPONENT}::test_deletes_store_the_values_that_hudi_compares",
    ),
    "ordering values of deletes in another type than the column's: reads fail": (
        f"{COMPONENT}::test_deletes_store_the_values_that_hudi_compares",
        "unit/format/test_avro_wrappers.py::test_ordering_values_of_deletes",
    ),
    "null ordering values that meet a log record: reads fail": ("component/test_bad_input.py::test_a_null_ordering_value",),
    "partial blocks where the last write wins: reads fail": (
        f"{INTEROP}::test_partial_rows_where_the_last_write_wins",
        "component/operations/test_partial_updates.py::test_commit_time_ordering_writes_complete_rows",
    ),
    "incremental queries over partial blocks: garbage, or the process dies": (
        f"{COMPONENT}::test_partial_updates_in_incremental_queries",
    ),
    "partial blocks in a table with a delete marker column: reads fail": (
        "interop/test_partial_updates.py::test_hudi_reads_complete_rows_when_a_column_marks_deletes",
    ),
    "log compactions skip partial updates, but list them as merged": (
        "interop/test_partial_updates.py::test_log_compactions_of_partial_updates",
        "unit/tasks/test_compaction_tasks.py::test_log_compaction_of_hudi_does_not_replace_partial_updates",
    ),
    "log compactions merge by ordering value regardless of the payload class": (
        "interop/test_payloads.py::test_log_compactions_of_each_library",
        "unit/tasks/test_compaction_tasks.py::test_log_compaction_of_hudi_is_ignored_with_a_payload_class",
    ),
    "files from before a required column with a default: reads fail, or show 0": (
        "interop/test_required_defaults.py::test_files_from_before_the_column",
        "component/operations/test_required_defaults.py::test_every_read_returns_the_default",
    ),
    "positions that do not fit the base file: the wrong row is replaced": (
        "unit/tasks/test_positions.py::test_positions_of_other_rows_are_found_out_where_keys_are_read",
        "unit/tasks/test_positions.py::test_a_key_that_the_base_file_holds_twice_has_no_position",
    ),
    "an uncommitted base file takes later log files along: committed logs are hidden": (
        f"{SLICES}::test_logs_next_to_an_uncommitted_base_file_are_read",
        f"{SLICES}::test_committed_log_after_a_failed_one_is_read",
    ),
    "the oldest instant of the timeline counts as committed while it is pending": (
        f"{SLICES}::test_a_pending_base_file_is_invisible",
    ),
    "merge properties that disagree or are missing: reads fail": (
        "unit/records/test_merge_mode.py::test_contradictions",
        "component/test_bad_input.py::test_each_property_of_tables_has_a_contradiction",
    ),
    "options that contradict the table are taken for one commit": (
        "component/test_bad_input.py::test_options_that_contradict_the_table",
    ),
    "payload classes whose deletes differ between copy on write and merge on read": (
        "component/operations/test_payloads.py::test_truth_table",
    ),
    "delete markers under EventTimeAvroPayload: updates are stored, or the write fails": (
        "component/operations/test_delete_marker.py::test_delete_marker_with_a_payload_that_ignores_it_is_refused",
    ),
    "the column _hoodie_operation": (f"{COMPONENT}::test_the_column_of_operations_hides_no_row",),
    "block identifiers are ignored; bytes after a block hide it": (
        f"{COMPONENT}::test_log_block_headers_contain_what_hudi_requires",
    ),
    "log compactions bring back rows that were deleted softly": (
        "unit/tasks/test_compaction_tasks.py::test_merged_block_has_the_position_of_its_newest_source",
        "interop/test_mor_compaction.py::test_pyhudi_reads_and_compacts_log_compactions_of_hudi",
    ),
    "columns that become numbers or texts in another sense: timestamp to bigint, binary and string": (
        "unit/records/test_schema.py::test_types_evolve_as_both_readers_understand",
    ),
    # Queries
    "incremental from the earliest finds nothing": (f"{INTEROP}::test_incremental_read_from_the_earliest_commit",),
    "incremental where files were cleaned: log files are left out": ("interop/test_incremental.py::test_ranges",),
    "change data of replaced file groups repeats one row; one row of each task is lost": (
        "interop/test_cdc.py::test_rows_that_apache_hudi_loses",
    ),
    "partition values with an equals sign, or empty, are read as others": (
        f"{INTEROP}::test_partition_values_not_recoverable_from_the_path",
    ),
    "a partition column that is the ordering field: rows show the file's value, filters use the folder's": (
        f"{INTEROP}::test_partition_column_as_ordering_field",
        "component/operations/test_folder_values.py::test_ordering_field_as_partition_column",
    ),
    "timestamp columns as partition fields are read as null": (f"{INTEROP}::test_timestamps_as_partition_values",),
    # The metadata table
    "partitions without statistics of a column are dropped": (
        f"{COMPONENT}::test_statistics_of_a_column_that_came_later_hide_nothing",
        f"{COMPONENT}::test_statistics_that_are_not_there_hide_nothing",
        "unit/metadata_table/test_metadata_records.py::test_statistics_of_partitions_are_tight_and_go_with_their_files",
    ),
    "files with statistics without bounds are dropped": (
        "unit/metadata_table/test_metadata_records.py::test_a_range_that_is_not_known_is_never_written",
        "component/metadata_table/test_writer.py::test_bounds_missing_from_footers_are_computed",
    ),
    "files and partitions with a bound that is NaN are dropped": (
        f"{INTEROP}::test_nan_in_columns_with_statistics",
        "component/operations/test_data_skipping.py::test_infinite_upper_bound_may_include_nan",
    ),
    "secondary keys with a dollar sign or a backslash are not found": (f"{SKIPPING}::test_secondary_and_expression_indexes",),
    "secondary keys that are dates are not found": (f"{COMPONENT}::test_dates_in_a_secondary_index",),
    "an expression index answers for other expressions": (f"{SKIPPING}::test_expression_index_serves_only_its_expression",),
    "the last entries of a block of an HFile are not seen": (
        "unit/format/hfile/test_files.py::test_every_request_agrees_with_a_dict",
        "interop/test_metadata_table.py::test_both_compact_the_metadata_table_alternately",
    ),
    "files that the metadata table does not know are lost": (
        "component/operations/test_validate.py::test_damage_is_found",
        "simulation/test_metadata_table.py::test_writes",
    ),
    "filters fail where column statistics have no definition": (
        "component/operations/test_data_skipping.py::test_without_definition_statistics_are_not_used",
    ),
    "sizes in the listing that are too small cut files": (
        "unit/metadata_table/test_metadata_records.py::test_files_without_a_size_are_refused",
    ),
    "timestamps in milliseconds are compared as microseconds": (
        "unit/records/test_column_statistics.py::test_finer_and_coarser_timestamps_of_a_footer_become_microseconds",
    ),
    "a metadata table that was deleted but is still configured: writes fail": (
        "component/metadata_table/test_writer.py::test_missing_metadata_table_is_reported",
    ),
    # Timeline and services
    "a rolled back clustering looks pending": (f"{COMPONENT}::test_rolled_back_clustering_leaves_no_plan",),
    "a data file without a marker outlives the rollback and counts later": (
        f"{COMPONENT}::test_no_data_file_comes_before_its_marker",
    ),
    "files of the history that span a range are skipped": (
        "unit/table/timeline/test_archived_timeline.py::test_a_range_opens_files_that_span_it",
    ),
    "writes to a file group under clustering are lost": (
        "component/operations/test_clustering.py::test_a_pending_plan_holds_its_file_groups",
        "component/operations/test_clustering.py::test_concurrent_clustering_and_write_when_writes_have_priority",
    ),
    "a deleted key reinserted during a planned compaction is not found after it: the next upsert duplicates it": (
        "component/engines/test_write_indexes.py::test_keys_that_only_a_log_has_after_a_compaction",
        "spark/test_write_indexes.py::test_keys_that_only_a_log_has_after_a_compaction",
        f"{SLICES}::test_logs_that_may_hold_keys_which_the_base_file_lacks",
    ),
    "two file groups of one bucket stop all writers": (
        "component/operations/test_write_index_choice.py::test_two_writers_that_begin_one_bucket_conflict",
    ),
    "partitions that were written to lately expire, as log files are not looked at": (
        "interop/test_services.py::test_both_let_the_same_partitions_expire",
    ),
    "the plan of a compaction or clustering has to outlive it": (
        "interop/test_services.py::test_hudi_writes_after_services_of_pyhudi",
    ),
    "a filter on a column that came later skips partitions that were not written since": (
        f"{INTEROP}::test_a_column_that_came_after_a_partition_was_written",
    ),
    # Table version 9 of release 1.1.1
    "ORC base files: reads of copy on write by Spark's vectorized reader fail, and bulk inserts and compactions": (
        "interop/test_orc.py::test_release_1_1_reads_orc_tables_of_both_writers",
    ),
    "upgrade of a table with a custom merger and a payload class: the merger is dropped": (
        "component/operations/test_upgrade_9.py::test_custom_merger_is_kept",
    ),
    "a null in a tuple of ordering values: writes or reads of its file fail": (
        f"{COMPONENT}::test_a_null_in_a_tuple_of_ordering_values_is_refused",
    ),
    "dates as ordering values of deletes: in a tuple reads fail, alone the write fails": (
        f"{COMPONENT}::test_deletes_with_dates_as_ordering_values",
    ),
    "a deleted key that is written again before the compaction is left out of the record index": (
        f"{COMPONENT}::test_a_deleted_key_that_is_written_again_is_in_the_record_index",
    ),
    "change data shows the placeholder of what a change did not carry": (
        "interop/test_cdc.py::test_update_modes_of_alternating_writers",
    ),
    "a partitioned record index puts a key of two partitions into one, and a row is lost": (
        "interop/test_write_indexes.py::test_apache_hudi_loses_a_key_of_two_partitions",
        "component/operations/test_partitioned_record_index.py::test_every_operation_and_service",
    ),
    "a partitioned record index is written as one of the whole table, or not at all in a table with a dot in a partition path": (
        "component/operations/test_partitioned_record_index.py::test_unsupported_combinations_are_refused",
    ),
    "a downgrade leaves a partitioned record index in a table of version 8": (
        "component/operations/test_upgrade_9.py::test_downgrade_of_a_table_with_version_9_features_is_rejected",
        "component/operations/test_version_9.py::test_partitioned_record_index_is_read_in_every_partition",
    ),
    "an expired partition makes run_ttl fail": ("interop/test_procedures.py::test_time_to_live_of_version_9",),
    "times of files in microseconds are taken for milliseconds, where the table has these": (
        "interop/test_local_timestamps.py::test_release_1_1_reads_local_timestamps_in_the_unit_of_the_file",
    ),
    "1.2.0: a write of a table with column statistics that reads a record or secondary index on its workers fails": (
        "interop/test_release_1_2.py::test_release_1_2_overwrites_no_table_with_a_record_index_and_statistics",
        "interop/test_release_1_2.py::test_release_1_2_cannot_write_after_a_partitioned_record_index_of_pyhudi",
        "interop/test_release_1_2.py::test_release_1_2_cannot_write_after_a_secondary_index_of_pyhudi",
    ),
    "1.2.0: dates in ORC base files: the write fails": (
        "interop/test_release_1_2.py::test_release_1_2_writes_no_dates_into_orc_files",
    ),
    "a clustering that was planned before an overwrite brings the replaced rows back": (
        "interop/test_overwrites_with_pending_plans.py::test_a_clustering_of_hudi_brings_replaced_rows_back",
        "simulation/test_overwrites_during_compactions.py::test_a_planned_clustering_holds_its_file_groups",
    ),
    "a plan that names replaced files which a clean has deleted can never run": (
        "interop/test_overwrites_with_pending_plans.py::test_overwrite_and_clean_before_a_planned_compaction_runs",
        "simulation/test_overwrites_during_compactions.py::test_overwrite_clean_and_archival_before_the_plan_runs",
    ),
    "a write that planned long after it took its instant, or concurrently with another one, is hidden by a later instant": (
        "component/api/test_doctor.py::test_write_of_hudi_that_planned_long_after_it_took_its_instant_is_reported",
        "unit/planning/test_hidden_writes.py::test_write_that_plans_long_after_it_took_its_instant_is_hidden_by_the_later_one",
    ),
    "a clustering replaces file groups without a write that committed while it ran": (
        "interop/test_clusterings_during_writes.py::test_write_during_which_hudi_starts_a_clustering",
        "component/operations/test_conflict_resolution.py::test_write_conflicts_with_a_plan_that_hudi_starts_during_the_write",
    ),
    "an upsert of decimal(3,1) into decimal(3,2) turns the copied 1.25 into 12.5": (
        f"{INTEROP}::test_decimals_of_a_smaller_scale_become_others",
    ),
    "upserts of existing keys are lost where the operation column is written": (
        f"{INTEROP}::test_upserts_with_the_operation_column_are_lost",
    ),
    "a filter on a text column finds no row with a long value": (f"{INTEROP}::test_filters_do_not_find_long_texts",),
    "a downgrade of a table without a payload class names none": (
        "component/operations/test_upgrade_9.py::test_without_a_payload_class_a_table_gets_that_of_its_mode",
        "interop/test_upgrade_9.py::test_version_9_tables_are_downgraded_with_their_indexes",
    ),
}


@cache
def functions(path: str) -> frozenset[str]:
    """The test functions of a file, those of its classes too."""
    tree = ast.parse((TESTS / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


@pytest.mark.parametrize("defect", sorted(DEFECTS))
def test_each_defect_has_its_tests(defect: str) -> None:
    assert DEFECTS[defect]
    for name in DEFECTS[defect]:
        path, _, function = name.partition("::")
        assert function in functions(path), f"{name} does not exist"


def test_the_tests_of_defects_are_all_listed() -> None:
    listed = {name for names in DEFECTS.values() for name in names}
    for path in (COMPONENT, INTEROP):
        assert {f"{path}::{function}" for function in functions(path)} <= listed
