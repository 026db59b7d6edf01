"""Bring what others trained into a bundle: the reader of validation rows, and how they are split."""
