"""Money: the book at prices, who pays what, statements, invoices. Pure."""
