"""The metadata table (MDT): codecs, reader, writer, and one module per index type."""
