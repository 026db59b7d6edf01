"""Studies: grids of networks that repeat the comparisons of published work, and reports of what they show.

A *cell* is one network to train and to measure, in its own folder. Cells are resumable. Several workers, on one machine
or on several that share a folder, run a grid without doing any cell twice. A *report* is a function of the results
alone. `registry.STUDIES` names the studies; `docs/explanation/studies.md` says how to run them.
"""
