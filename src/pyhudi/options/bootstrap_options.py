"""Options of the bootstrap of existing Parquet files."""

from __future__ import annotations

from pyhudi.options.declaration import Option

MODE_SELECTOR = Option(
    "hoodie.bootstrap.mode.selector",
    str,
    "MetadataOnlyBootstrapModeSelector",
    "class that chooses the partitions whose rows a bootstrap leaves where they are: "
    "MetadataOnlyBootstrapModeSelector, FullRecordBootstrapModeSelector or BootstrapRegexModeSelector",
)
MODE_SELECTOR_REGEX = Option(
    "hoodie.bootstrap.mode.selector.regex",
    str,
    ".*",
    "partitions of the source to which BootstrapRegexModeSelector gives its mode",
)
MODE_SELECTOR_REGEX_MODE = Option(
    "hoodie.bootstrap.mode.selector.regex.mode",
    ("METADATA_ONLY", "FULL_RECORD"),
    "METADATA_ONLY",
    "the mode of the partitions that the expression matches; the others get the other one",
)
PARTITIONPATH_TRANSLATOR_CLASS = Option(
    "hoodie.bootstrap.partitionpath.translator.class",
    str,
    "IdentityBootstrapPartitionPathTranslator",
    "class that names the table's partitions after the folders of the source: "
    "IdentityBootstrapPartitionPathTranslator, or DecodedBootstrapPartitionPathTranslator, which undoes percent-encoding",
)
