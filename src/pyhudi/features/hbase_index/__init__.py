"""The HBase index: record locations in a table of HBase."""
