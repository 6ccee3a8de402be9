"""The claims of the paper (`paper/claims.yaml`), each with a verdict from the printed numbers and from runs.

    python -m paper.claims --results results/<scale>       writes claims.csv and claims.md, both ledgers

    claims.py      what claims.yaml declares              tests.py       the kinds of test a claim can name
    from_print.py  the printed tables as a source         from_runs.py   a results tree as a source
    contrast.py    one tested quantity                    ledger.py      sources and tests -> verdicts
    entries.py     a verdict; claims.csv and claims.md

docs/claims.md describes how each verdict comes about.
"""
