"""Runs one statement on SQLite for the stand-ins in other languages: `sql.py STATEMENT [NUMBER …]`, with PostgreSQL's
$1. Prints the number of changed rows, or the first column of each row found, as JSON."""

import json
import os
import sqlite3
import sys

with sqlite3.connect(os.environ["STANDIN_DATABASE"]) as database:
    values = {str(index): int(value) for index, value in enumerate(sys.argv[2:], 1)}
    done = database.execute(sys.argv[1], values)
    names = [column[0] for column in done.description or []]
    rows = [dict(zip(names, row)) for row in done.fetchall()]
    print(json.dumps({"rows": rows, "rowCount": len(rows) if names else done.rowcount}))
