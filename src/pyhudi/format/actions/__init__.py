"""Documents of the timeline: the contents of each action's requested, inflight and completed files.

One module per action. A document is a frozen dataclass with `encode(sync) -> bytes` and `decode(data)`. Its attributes
are the field names of its Avro schema in snake case, arrays are tuples, maps are dicts in the order of the file, and
null is None unless the docstring states otherwise. `sync` is the 16-byte marker of the Avro container; writers that
need byte equality pass their own.

Decoding resolves fields by name, so files of other writers and versions are supported. Invalid bytes raise CorruptData,
to which the caller adds the path.

Specification: docs/formats/timeline.md.
"""
