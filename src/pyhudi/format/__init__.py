"""Bytes, names and documents of the Hudi table format, and the values they stand for.

Everything here is pure: bytes or text in, a frozen value or one error out, and back.  No module of this package opens a
file, reads the clock, or knows an option.
"""
