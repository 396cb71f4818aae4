"""One module for each version of the tables. Released versions never change; new ones are added."""
