"""A process that reads with one reader: `python -m benchmarks.readers.process READER TABLE`.

It answers each line, the name of a case, with a JSON object: processor seconds of all its threads, seconds on the clock, and what
the rows come to (see `kinds.answer`).
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.readers.kinds import READERS, BaseFiles, answer


def main(reader: str, table: str) -> None:
    files = BaseFiles.of(table)
    read = READERS[reader](files)
    for line in sys.stdin:
        asked = files.asked(line.strip())
        processor, clock = time.process_time(), time.perf_counter()
        rows = read(asked)
        took = {"cpu_s": time.process_time() - processor, "wall_s": time.perf_counter() - clock}
        print(json.dumps({**took, "answer": answer(rows)}), flush=True)
        del rows


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
