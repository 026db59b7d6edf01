"""Validation rows as examples of a model.

    make_examples(rows, model.inputs)   → Examples

Images, arrays and tables have a file each here.
"""

from importing.examples.images import Wanted
from importing.examples.make import make_examples
from importing.examples.result import Examples, OnDemand, Values
from importing.examples.tables import text_columns

__all__ = ["Examples", "OnDemand", "Values", "Wanted", "make_examples", "text_columns"]
