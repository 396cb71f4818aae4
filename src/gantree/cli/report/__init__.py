"""Reports for the files of an office: one document, as HTML or as PDF."""
