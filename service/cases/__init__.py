"""The review queue: what a person sees of a case, and how many wait."""
