"""What is in service: the hot path, the models and their revisions, loaded, swapped and proposed."""
