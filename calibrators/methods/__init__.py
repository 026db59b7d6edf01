"""The calibrators, one file each, their shared bases, and the inverse maps from probabilities to logits."""
