"""What commands print of texts that others wrote."""

from __future__ import annotations

import io
import json

import pytest
import typer
from rich.console import Console
from rich.table import Table

from candor import UnreachableError
from service.commands.output import complaints, console, print_json, reporting

HOSTILE = "ok\x1b]0;owned\x07\x1b[2J\x9b31m\u202eback\x7f"


@pytest.mark.parametrize("out", [console, complaints], ids=["output", "errors"])
def test_a_terminal_obeys_no_text(out: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(out, "_file", written)  # `file` of a console without one is what stdout is now
    table = Table("reason")
    table.add_row(HOSTILE)
    out.print(table)
    out.print(f"[red]{HOSTILE}[/red]", soft_wrap=True)
    assert written.getvalue().count("owned") == 2
    assert not set(written.getvalue()) & {"\x07", "\x1b", "\x7f", "\x9b", "\u202e"}


def test_json_is_escaped_and_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"reason": HOSTILE, "name": "Zoë"})
    written = capsys.readouterr().out
    assert not set(written) & {"\x07", "\x1b", "\x7f", "\x9b", "\u202e"}
    assert "Zoë" in written
    assert json.loads(written)["reason"] == HOSTILE


def test_a_certificate_that_nothing_trusts_is_not_a_service_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), reporting():
        raise UnreachableError("It does not answer: [SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired")
    assert "SSL_CERT_FILE" in (said := capsys.readouterr().err)
    assert "make serve" not in said
