"""The metadata table (MDT): codecs, reader, writer and one module for each index type."""
