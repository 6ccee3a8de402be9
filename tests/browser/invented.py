"""Responses that try to be more than text."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.files import read_json, write_json
from core.layout import Checkpoint, Results, Run
from core.provenance import sha256_file

HOSTILE = (
    "<script>window.struck = 'script'</script><img src=x onerror=\"window.struck = 'image'\">"
    "<a href=\"javascript:window.struck='link'\">here</a> </script><!-- --> &lt;b&gt; \u202eright to left\u202c \x07"
    " \\(a^2 + b^2\\) $\\frac{1}{$".encode()
)
LONG = b"x = 1, " * 600_000  # 4.2 MB
BROKEN = b"broken \xff\xfe here, cut \xe2\x82"
STRUCK = (Checkpoint(Run("tiny_qwen2", "tepo", 1), 12), "syn_as3")  # whose first responses are those three


def hostile(root: Path) -> None:
    """Replace the first responses of one file by HOSTILE, BROKEN and LONG, in bytes as a broken writer might."""
    checkpoint, benchmark = STRUCK
    layout = Results(root)
    path = layout.samples(checkpoint) / f"{benchmark}.parquet"
    table = pq.read_table(path).sort_by([("item_id", "ascending"), ("sample", "ascending")])
    texts = [HOSTILE, BROKEN, LONG, *(text.encode() for text in table["response"].to_pylist()[3:])]
    column = pa.array(texts, pa.binary()).view(pa.string())  # not checked to be UTF-8
    pq.write_table(table.set_column(table.column_names.index("response"), "response", column), path)
    for record, key in (
        (layout.samples(checkpoint) / "samples.json", "sha256"),
        (layout.grades(checkpoint) / "grades.json", "samples_sha256"),
    ):
        value = read_json(record)
        value["benchmarks"][benchmark][key] = sha256_file(path)
        write_json(record, value)
