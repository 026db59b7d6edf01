"""Score files without a server: every core reads, runs the model, decides, and writes parts of the output.

    summary = score("payments/", "scored/", model="payments", policy="card-fraud")

`inputs` finds files and cuts them into parts, `columns` turns a part into the model's input, `worker` scores it,
`output` writes it, `manifest` says what is done, and `run` has the processes do all that.
"""

from service.bulk.run import Options, Summary, score

__all__ = ["Options", "Summary", "score"]
