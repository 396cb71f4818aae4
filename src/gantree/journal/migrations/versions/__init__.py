"""One module for each version of the tables. What was released is never changed; a new version is added."""
