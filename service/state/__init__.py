"""Durable state: predictions, feedback, revisions, keys, audit."""
