# SPDX-License-Identifier: Apache-2.0
"""Reading C sources for the checks: which files there are, text without comments and strings."""
import os
import re

SKIPPED = {".git", "models", "data", "__pycache__", ".venv"}

TOKEN = re.compile(
    r"//(?:\\\n|[^\n])*"              # line comment
    r"|/\*.*?(?:\*/|\Z)"              # block comment
    r'|"(?:\\.|[^"\\\n])*"'           # string
    r"|'(?:\\.|[^'\\\n])*'",          # character
    re.DOTALL)
INCLUDE_LINE = re.compile(r"#\s*include\s*$")


def source_files(root, endings):
    """Paths from root, sorted; build folders, models and test data are no sources."""
    found = []
    for where, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith("build"))
        found += [os.path.relpath(os.path.join(where, f), root) for f in files if f.endswith(tuple(endings))]
    return sorted(found)


def blank_comments(text, keep_includes=False):
    """Comments become blanks, strings and characters lose their inside; every line stays where it is."""
    def blank(match):
        token = match.group()
        if token[0] in "\"'":
            line = text[text.rfind("\n", 0, match.start()) + 1:match.start()]
            if keep_includes and INCLUDE_LINE.search(line):
                return token
            return token[0] + " " * (len(token) - 2) + token[0]
        return re.sub(r"[^\n]", " ", token)
    return TOKEN.sub(blank, text)
