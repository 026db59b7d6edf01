"""Errors in the words of a command."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class Commands(TyperGroup):
    """Commands whose errors begin with what is wrong: typer reads choices with pydantic, which puts words before it."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; raises typer.BadParameter."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise
