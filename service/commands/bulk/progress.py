"""Progress of a run: rows, rows per second, time left."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from service.commands.output import complaints


class _RowsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} rows/s")


def progress_bar() -> Progress:
    """Return a bar on standard error, shown on terminals only. Its tasks have a field `refused`."""
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        _RowsPerSecond(),
        TimeRemainingColumn(),
        TextColumn("left, {task.fields[refused]} refused"),
        console=complaints,
        disable=not complaints.is_terminal,
    )
