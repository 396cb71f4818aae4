"""How a parser refuses a text: what the text looks like instead, and all problems at once."""
