"""Codecs of the Hudi table format: bytes, file names and documents to values and back.

Every function here is pure: bytes or text in, one immutable value or one error out. No module of this package opens a
file, reads the clock, or knows an option.
"""
