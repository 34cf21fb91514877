"""Finds the command, configuration and install lines of the pages, which a reader types or pastes. Runs nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Iterator, List

ROOT = Path(__file__).resolve().parents[1]

PAGES = ["README.md", "CONTRIBUTING.md", "docs/*.md", "results/*.md", "clients/*.md", "clients/*/README.md"]
PAGES += ["cli/README.md", "examples/*/README.md", "packaging/*.md", "packaging/*/README*"]
# Generated pages.
WRITTEN = ("benchmarks", "SUMMARY")

# Languages of fenced blocks whose lines are typed or pasted. Other blocks are programs, which the client tests run, and
# sessions, which tests/it replays.
TYPED = ["sh", "console", "dockerfile", "yaml", "crontab", "ini"]

# An indented line that starts with this is typed or pasted, including the lines indented below it.
BEGIN = r"(sudo |[A-Z_]+=\S* )*(apt|apt-get|brew|cargo|cli/|clients/|curl|docker|echo|export|git|grep|helm|install"
BEGIN += r"|kubectl|make|mvn|node|npm|pip|podman|prometheus-redis-exporter|promtool|python3?|(\./)?redis-lock"
BEGIN += r"|redis-(cli|server)|scripts/|sed"
CRON = r"\S+ \S+ \* \* \*"
BEGIN += r"|systemctl|valkey-(cli|server)|include|loadmodule|lock\.|maxmemory|appendonly|user )\b|[A-Z_]+=|" + CRON

# In a sentence or a table: code that installs or starts something, as opposed to the mention of a program.
INLINE = r"(apt|apt-get) install|brew \w+|cargo (add|install)|COPY --|docker (compose \w|run -|build)|echo \w+ "
INLINE += r"|loadmodule /"
INLINE += r"|mvn -q|npm install|pip install|python3 -m venv|redis-server --|redis-cli -p|make \w|scripts/\w+ \w"


def lines() -> Dict[str, List[str]]:
    """Each line, with the pages that have it."""
    found: Dict[str, List[str]] = {}
    paths = sorted(path for pattern in PAGES for path in ROOT.glob(pattern))
    for path in paths:
        if not path.name.startswith(WRITTEN):
            for line in lines_of(path.read_text()):
                found.setdefault(line, []).append(path.relative_to(ROOT).as_posix())
    return found


def lines_of(text: str) -> Iterator[str]:
    language, above, is_listed = None, "", False
    text = re.sub(r" *\\\n *", " ", text)
    for line in text.split("\n"):
        if line.startswith("```"):
            language = line[3:] if language is None else None
        elif language is not None:
            is_typed = language in TYPED and line.strip() and not line.startswith("#")
            if is_typed and (language != "console" or line.startswith("$ ")):
                yield shortened(line.removeprefix("$ "))
        elif line.startswith("    ") and (is_listed or not above.strip()):
            is_listed = bool(re.match(BEGIN, line.strip()))
            if is_listed:
                yield shortened(line)
        else:
            is_listed = False
            for code in re.findall(r"`([^`]+)`", line):
                if re.match(INLINE, code):
                    yield shortened(code)
        above = line


def shortened(line: str) -> str:
    """The line with single spaces, and without the explanation after it."""
    if re.match(CRON, line.strip()):
        line = re.sub(r"\s+", " ", line)
    return re.sub(r"\s+", " ", re.sub(r"\s{2,}\S*[#a-zA-Z].*$|\s+# .*$", "", line.strip()))


if __name__ == "__main__":
    for line, pages in lines().items():
        print(f"{', '.join(pages)}: {line}")
