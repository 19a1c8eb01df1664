"""Schema evolution on read: columns identified by ids."""
