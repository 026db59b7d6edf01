"""Files of rows: read as batches of columns, and checked row by row before a labelled set is stored."""
