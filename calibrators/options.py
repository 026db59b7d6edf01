"""The options that a calibrator was made with: shown with it, and fixed."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from calibrators.errors import CalibrationDataError, shown


class FixedOptions:
    """What is made with options, which cannot be changed afterwards, and is then fitted.

    A fit, its document and what is read from the options at once all agree, since the options stay as they were
    checked.

    Attributes:
        classes_: Number of classes of the fit, or 0.
    """

    classes_: int = 0

    _needs_fit: ClassVar[bool] = True
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        """Notes the names and defaults of the constructor's arguments."""
        super().__init_subclass__()
        cls._defaults = {name: one.default for name, one in inspect.signature(cls).parameters.items()}

    def __repr__(self) -> str:
        """Class, options other than the defaults, and for how many classes it is fitted."""
        parts = []
        for name, default in self._defaults.items():
            value = getattr(self, name, default)
            if value != default:
                parts.append(f"{name}={value!r}")
        if self.classes_ != 0 or self._needs_fit:
            parts.append(f"fitted for {self.classes_} classes" if self.classes_ != 0 else "not fitted")
        return f"{type(self).__name__}({', '.join(parts)})"

    # Unseen by type checkers, which would then let any attribute be set.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            """Sets an attribute, but no option a second time.

            Raises:
                CalibrationDataError: It is an option.
            """
            if name in self.__dict__ and name in self._defaults:
                raise CalibrationDataError(
                    "Options are fixed",
                    where=f"{name} of {self!r}",
                    found=f"set to {shown(value)}",
                    expected="another calibrator, made with that option",
                )
            super().__setattr__(name, value)
