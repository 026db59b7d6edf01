"""What must survive a restart: predictions, feedback, revisions, keys, audit."""
