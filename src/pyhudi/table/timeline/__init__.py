"""The timeline of a table: active instants as a frozen value, the archived timeline, and the operations that add to them."""
