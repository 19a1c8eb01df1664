"""The documents of the timeline: what each action writes into its requested, inflight and completed files.

One module per action.  A document is a frozen dataclass with `encode(sync) -> bytes` and `decode(data)`; attributes are the
field names of its Avro schema in snake case, arrays are tuples, maps are dicts in the order of the file, and null is None
except where the docstring says what it stands for.  `sync` is the 16-byte marker of the Avro container; writers that care
about byte equality pass their own.

Decoding resolves by field name, so files of other writers and versions are read as well; what breaks the format is
CorruptData, whose path the caller adds.

Source: docs/formats/timeline.md.
"""
