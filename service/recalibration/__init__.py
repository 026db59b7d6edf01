"""Recalibration on labelled rows: jobs, the child process that computes, and its report."""
