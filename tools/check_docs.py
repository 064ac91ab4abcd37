#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_docs.py - the documents speak of what is there.

docs/architecture.md mentions every file of include/, src/ and cli/: by its path, or by its name in
a section whose heading names its folder; and every path it mentions exists. Links in all markdown
files lead to existing files and headings. The programs of scripts/ and tools/ that are mentioned
exist and can be run, and README.md names the two commands. docs/README.md, the index, leads to every
page of docs/. Lines have at most 130 columns, but for rows of tables, code and generated pages.
"""
import os
import re

import tree

ARCHITECTURE = "docs/architecture.md"
COMMANDS = ("scripts/demo", "scripts/test")
INDEX = "docs/README.md"
GENERATED = ("docs/cli.md",)
COLUMNS = 130


def sections(text):
    """(heading, body) pairs; what stands before the first heading has the heading ''."""
    heading, body = "", []
    for line in text.split("\n"):
        if line.startswith("#"):
            yield heading, "\n".join(body)
            heading, body = line, []
        else:
            body.append(line)
    yield heading, "\n".join(body)


def mentions(text, word):
    return re.search(rf"(?<![\w./-]){re.escape(word)}(?![\w-])", text) is not None


def check_architecture(root):
    if not os.path.exists(os.path.join(root, ARCHITECTURE)):
        yield f"{ARCHITECTURE}: does not exist"
        return
    text = tree.read(root, ARCHITECTURE)
    parts = list(sections(text))
    for path in tree.files(root, ("include", "src", "cli"), (".c", ".h")):
        folder, name = os.path.split(path)
        if not mentions(text, path) and not any(
                mentions(heading.replace("`", " ").replace("/ ", " "), folder) and mentions(body, name)
                for heading, body in parts):
            yield f"{ARCHITECTURE}: does not mention {path}"
    for path in sorted(set(re.findall(r"(?<![\w./-])(?:src|cli|include|tests|tools|cmake)/[\w./-]*\.\w+", text))):
        if not os.path.exists(os.path.join(root, path.rstrip("."))):
            yield f"{ARCHITECTURE}: mentions {path}, which does not exist"


def anchors(text):
    """The names GitHub gives to headings."""
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check_links(root, path):
    text = re.sub(r"^```.*?^```", "", tree.read(root, path), flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not os.path.exists(os.path.join(root, file)):
            yield f"{path}: link to {target}: no such file"
        elif anchor and file.endswith(".md") and anchor not in anchors(tree.read(root, file)):
            yield f"{path}: link to {target}: no such heading"


def check_index(root, documents):
    text = tree.read(root, INDEX) if INDEX in documents else ""
    linked = {os.path.normpath(os.path.join("docs", t.partition("#")[0])) for t in re.findall(r"\]\(([^)\s]+)", text)}
    for path in documents:
        if path.startswith("docs/") and path != INDEX and path not in linked:
            yield f"{INDEX}: does not link to {path}"


def check_columns(root, path):
    text = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", "", m.group(0)), tree.read(root, path), flags=re.M | re.S)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > COLUMNS and not line.startswith("|") and path not in GENERATED:
            yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS}"


def check_programs(root, path):
    text = tree.read(root, path)
    for program in sorted(set(re.findall(r"(?<![\w./-])(?:scripts|tools)/[\w-]+(?:\.\w+)?", text))):
        file = os.path.join(root, program)
        if not os.path.exists(file):
            yield f"{path}: mentions {program}, which does not exist"
        elif not program.endswith("/tree.py") and not os.access(file, os.X_OK):
            yield f"{path}: mentions {program}, which cannot be run"


def main():
    root = tree.arguments(__doc__.split("\n")[0]).parse_args().root
    problems = list(check_architecture(root))
    documents = tree.files(root, endings=[".md"])
    for path in documents:
        problems += check_links(root, path)
        problems += check_programs(root, path)
        problems += check_columns(root, path)
    problems += check_index(root, documents)
    readme = tree.read(root, "README.md") if "README.md" in documents else ""
    problems += [f"README.md: does not name {c}" for c in COMMANDS if not mentions(readme, c)]
    tree.verdict("check_docs", problems, f"{len(documents)} documents")


main()
