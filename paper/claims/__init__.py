"""The claims of the paper (`paper/claims.yaml`), each with a verdict from the printed numbers and from runs.

    ledger.from_print() -> list[Entry]       is the printed difference larger than noise? needs no results
    ledger.from_runs(tree) -> list[Entry]    what the runs of a results tree say: an entry per claim and settings
    python -m paper.claims --results results/<scale>       writes claims.csv and claims.md, both ledgers

`claims` reads the declarations, `tests` holds the kinds of test, `from_print` and `from_runs` are the two sources of
their numbers, `ledger` makes the verdicts. docs/claims.md says how each verdict comes about.
"""
