"""What all readers of files share: kinds of fields, validation, and the line of each problem."""
