"""The lessons as a folder of offline pages: one a chapter and language, one style and one script for all.

    lessons/index.html   lessons/lessons.css   lessons/lessons.js   lessons/fr/*.html   lessons/en/*.html

The built page (static/learn.html) holds every chapter, the style and the script; here they are taken apart. A
page of the folder carries its own text as plain HTML, so that it can be read, searched and printed where no
script runs, and the names of the other chapters. The script that they share is not a module: browsers refuse
modules from file:// addresses.
"""

from __future__ import annotations

import json
import os
import re
from html import escape
from pathlib import Path
from typing import Any

from regard.errors import OutputError
from regard.show.files import write_atomically
from regard.show.html import front_end
from regard.words import LANGUAGES, Language, say
from regard.words.system import reason_of

_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL)
_SCRIPT = re.compile(r'<script type="module"[^>]*>(.*?)</script>', re.DOTALL)
_BOOK = re.compile(r'<script type="application/json" id="regard-lessons">(.*?)</script>', re.DOTALL)
_LINK = re.compile(r'href="page:([\w-]+)(#[\w-]+)?"')
_POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'none'; base-uri 'none'; form-action 'none'"
)
_NAMES: dict[Language, str] = {"fr": "Français", "en": "English"}

Book = dict[str, Any]


def write_folder(directory: str | os.PathLike[str]) -> list[Path]:
    """Write the lessons into `directory` and return the files; the last is the index.

    The directory is made if it is not there. Raises OutputError when that cannot be.
    """
    built = front_end("learn")
    style, script, book = _STYLE.findall(built), _SCRIPT.findall(built), _BOOK.findall(built)
    if not (style and script and len(book) == 1):
        raise OutputError(say("errors.front_end_foreign"))
    lessons: Book = json.loads(book[0])
    files = {
        "lessons.css": "\n".join(style),
        "lessons.js": "(() => {\n" + "\n".join(script) + "\n})()\n",
    }
    for language in LANGUAGES:
        for chapter in lessons["languages"][language]:
            files[f"{language}/{chapter['slug']}.html"] = _page(lessons, language, chapter)
    files["index.html"] = _index(lessons)  # the last: a folder with a way in is whole
    root = Path(directory)
    try:
        for language in LANGUAGES:
            (root / language).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise OutputError(say("errors.cannot_write", path=root, reason=reason_of(error))) from error
    return [write_atomically(root / name, text.encode()) for name, text in files.items()]


def _page(lessons: Book, language: Language, chapter: Book) -> str:
    """One chapter: its text as HTML, and as data for the script, which takes over and mounts the figures."""
    named = {
        code: [
            {**one, "html": one["html"] if code == language and one is chapter else None} for one in chapters
        ]
        for code, chapters in lessons["languages"].items()
    }
    text = _LINK.sub(r'href="\1.html\2"', chapter["html"])
    body = f"""<div id="app"><div class="book"><main id="text"><article>
<header><h1>{escape(chapter["title"])}</h1><p class="idea">{escape(chapter["idea"])}</p></header>
<div class="text">{text}</div>
{_contents(lessons, language, "") if chapter["slug"] == "index" else ""}</article></main></div></div>
{_data("regard-data", {"kind": "lesson", "page": chapter["slug"]})}
{_data("regard-lessons", {**lessons, "languages": named})}
<script defer src="../lessons.js"></script>"""
    return _document(language, chapter["title"], "../", body)


def _index(lessons: Book) -> str:
    """The way in, for readers of either language."""
    columns = ""
    for language in LANGUAGES:
        (cover,) = (one for one in lessons["languages"][language] if one["slug"] == "index")
        columns += (
            f'<section lang="{language}"><p class="folio">{_NAMES[language]}</p>'
            f'<h2><a href="{language}/index.html">{escape(cover["title"])}</a></h2>'
            f"{_contents(lessons, language, f'{language}/')}</section>"
        )
    body = f'<div class="book"><main><article class="entry"><h1>Regard</h1>{columns}</article></main></div>'
    return _document("en", "Regard", "", body)


def _contents(lessons: Book, language: Language, folder: str) -> str:
    chapters = (one for one in lessons["languages"][language] if one["number"])
    return (
        "<ol>"
        + "".join(
            f'<li><a href="{folder}{one["slug"]}.html">{escape(one["title"])}</a></li>' for one in chapters
        )
        + "</ol>"
    )


def _data(name: str, value: object) -> str:
    text = json.dumps(value, ensure_ascii=False).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    return f'<script type="application/json" id="{name}">{text}</script>'


def _document(language: Language, title: str, root: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<meta name="color-scheme" content="light dark" />
<meta name="referrer" content="no-referrer" />
<meta http-equiv="Content-Security-Policy" content="{_POLICY}" />
<link rel="icon" href="data:," />
<title>{escape(title)}</title>
<link rel="stylesheet" href="{root}lessons.css" />
</head>
<body>
{body}
</body>
</html>
"""
