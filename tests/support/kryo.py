"""Kryo encodings as Hudi writes them into delete blocks."""

from __future__ import annotations


def class_named(number: int, name: str) -> bytes:
    return bytes([1, number]) + text(name)


def text(value: str) -> bytes:
    data = value.encode("ascii")
    return data[:-1] + bytes([data[-1] | 0x80])


def kryo(version: int, elements: list[bytes]) -> bytes:
    name = "org.apache.hudi.common.model." + ("DeleteRecord" if version == 2 else "HoodieKey")
    payload = class_named(0, f"[L{name};") + b"\x01" + bytes([len(elements) + 1])
    for index, element in enumerate(elements):
        payload += (class_named(1, name) if index == 0 else b"\x01\x01") + b"\x01" + element
    return version.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload
