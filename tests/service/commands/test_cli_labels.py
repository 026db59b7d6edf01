"""`candor labels` on a state without a service."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.commands.labels import app
from service.state.database import Database


@pytest.mark.parametrize("command", [["list"], ["retract", "--by", "thief", "--reason", "stolen"]])
def test_a_model_that_the_state_does_not_have_is_refused(command: list[str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    Database.open(url).close()
    done = CliRunner().invoke(app, [*command, "--model", "pest", "--database-url", url])
    assert done.exit_code == 2
    assert "The state has no model 'pest'." in done.stderr
