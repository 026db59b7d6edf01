"""Names of classes as a label column spells them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bundle.table import WHOLE
from importing.errors import RowsError
from importing.rows.values import Where

_LONGEST = 256


def class_names(label: NDArray[np.object_], where: Where) -> NDArray[np.object_]:
    """Return the labels (N,); where all are whole numbers, those written as floats (1.0) lose their decimals.

    So a file that lacked a label once, whose column became one of floats, has the same classes as the others.

    Raises:
        RowsError: A label is too long.

    Example:
        >>> class_names(np.array(["1.0", "0"], object), "row {}".format).tolist()
        ['1', '0']
        >>> class_names(np.array(["1.0", "a"], object), "row {}".format).tolist()
        ['1.0', 'a']
    """
    names = dict.fromkeys(label.tolist())
    for name in names:
        if len(name) > _LONGEST:
            row = label.tolist().index(name)
            raise RowsError("The label is too long.", where=where(row), expected=f"at most {_LONGEST} characters")
    whole = {name: match[1] for name in names if (match := WHOLE.fullmatch(name)) is not None}
    if len(whole) < len(names):
        return label
    shorter = np.empty(len(label), np.object_)
    shorter[:] = [whole[name] for name in label]
    return shorter
