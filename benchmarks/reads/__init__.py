"""The reads of the embedded engine beside delta-rs's, and beside those of an earlier commit: `python -m benchmarks.reads`."""
