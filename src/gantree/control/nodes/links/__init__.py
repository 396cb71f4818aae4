"""Health and load of links: what each source reports of NICs, GPU links and up-links."""
