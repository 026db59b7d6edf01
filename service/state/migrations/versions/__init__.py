"""One numbered file per schema change; never change the statements of a released file."""
