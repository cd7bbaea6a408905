"""The lessons: Markdown in French and in English under the same file names.

The build of the front end (web/lessons.plugin.ts) puts them into static/learn.html.
"""
