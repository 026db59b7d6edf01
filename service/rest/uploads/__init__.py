"""Labelled sets as files: received to disk, read and checked row by row in a child process, stored."""
