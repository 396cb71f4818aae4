"""One machine: a parser per source, `parse(text, source)`, and the putting together of several (`same_machine`)."""
