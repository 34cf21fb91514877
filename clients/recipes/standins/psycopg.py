"""Replaces psycopg by SQLite, for the calls of docs/recipes.md. Only psycopg's %(name)s is translated, to SQLite's
:name."""

import os
import re
import sqlite3
from typing import Any, Dict, Optional


class Connection:
    def __init__(self) -> None:
        self._sqlite = sqlite3.connect(os.environ["STANDIN_DATABASE"])

    def execute(self, statement: str, values: Optional[Dict[str, Any]] = None) -> sqlite3.Cursor:
        return self._sqlite.execute(re.sub(r"%\((\w+)\)s", r":\1", statement), values or {})

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self._sqlite.commit()
        self._sqlite.close()


def connect(_: str) -> Connection:
    return Connection()
