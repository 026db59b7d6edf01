"""One file a schema change, numbered; a file that has been released is never edited."""
