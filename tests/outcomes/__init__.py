"""Hold the outcome table: the end of every kind of job after every kind of event, as data, runs and a page.

`case` defines a case, `scripts` and `outside` make the cases, `table` holds them all. `run` runs one with `entrypoint
local`, `judge` compares, `page` writes docs/outcomes.md. tests/local/test_outcome_table.py has the tests.
"""
