"""The lessons: Markdown in French and in English under the same file names, read by the build of the front end."""
