"""One machine: a parser per source, `parse(text, source)`, and the merge of several readings (`merge`)."""
