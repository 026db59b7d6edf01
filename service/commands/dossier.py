"""`candor dossier`: what the state knows of a model, as one document that the audit log seals."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.commands.local import DatabaseUrl, settings_of
from service.commands.output import complaints, print_json, replacing, reporting, shown

if TYPE_CHECKING:
    from service.state.audit_chain import Head
    from service.state.database import Database
    from service.state.dossier import Section

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0;font-size:13px}"
    "td,th{border:1px solid #999;padding:.25rem .5rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
)
_ACTIVE = re.compile(r"([\\`*_{}\[\]<>|#])")


def dossier(
    model: Annotated[str, typer.Argument(help="The model.")],
    as_html: Annotated[bool, typer.Option("--html", help="Write HTML.")] = False,
    as_pdf: Annotated[bool, typer.Option("--pdf", help="Write PDF/A (requires --out and the extra `pdf`).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON, to compute the digest from.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
    bundles: Annotated[str | None, typer.Option(help="Folder of bundles, for data and training.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Write a model's dossier from the state: purpose, data, calibration, certificates, gates, approvals, alarms.

    The audit log gets its SHA-256; the last section has the head of the log's chain, signed with CANDOR_AUDIT_KEY_FILE
    if that is set. The default format is Markdown.
    """
    from service.state.audit_heads import key_of, signed
    from service.state.database import Database
    from service.state.dossier import Grid, Section, digest_of, seal, sections_of

    if as_html + as_pdf + as_json > 1:
        raise typer.BadParameter("give one of --html, --pdf and --json")
    if as_pdf and out is None:
        raise typer.BadParameter("--pdf requires --out")
    with reporting():
        typesetter = _typesetter() if as_pdf else None  # before the audit log gets an entry
        settings = settings_of({"database_url": database_url, "bundles": bundles})
        # Read-only connections see one snapshot, on PostgreSQL too.
        with (
            closing(Database.open(settings.state_url, beside_server=True, existing=True)) as database,
            closing(Database.open(settings.state_url, readonly=True)) as reading,
        ):
            with reading.connect() as connection:
                sections = sections_of(connection, model, None)
                if (manifest := _manifest(settings, sections)) is not None:
                    sections = sections_of(connection, model, manifest)
            _whole(reading)  # before the dossier adds its own entry
            seal(database, model, sections, by="local")
            whole = _whole(reading)
        facts = [("SHA-256 of the sections above", digest_of(sections)), ("last link", whole.head.hex())]
        facts += [("links of the audit log", str(whole.position)), ("its last entry", str(whole.entry))]
        if settings.audit_key_file is not None:
            facts.append(("signed head", signed(whole, key_of(settings.audit_key_file)).model_dump_json()))
        note = "The audit log has the digest of the sections above in its entry `dossier`, and its chain is whole."
        sealed = (*sections, Section("Seal", (note,), (Grid(("fact", "value"), tuple(facts)),)))
        if as_json:
            text = json.dumps({"sections": sections, "seal": dict(facts)}, ensure_ascii=False, indent=2) + "\n"
        else:
            text = _html(model, sealed) if as_html else _markdown(model, sealed)
        if out is None:
            print_json(json.loads(text)) if as_json else typer.echo(shown(text), nl=False)
        else:
            content = text.encode() if typesetter is None else _pdf(typesetter, model, sealed)
            with replacing(out) as file:
                file.write(content)
            complaints.print(f"The dossier is in {out}.")


def _whole(database: Database) -> Head:
    """Return the end of the audit log's chain.

    Raises:
        ConfigurationError: The chain is broken.
    """
    from service.errors import ConfigurationError
    from service.state import audit_chain

    with database.connect() as connection:
        whole, broken, _ = audit_chain.verify(connection)
    if broken is not None:
        raise ConfigurationError(
            f"The audit log is not whole, so it seals nothing: {broken}",
            where="the audit log",
            remedy="Find out who changed it. `candor audit verify` shows where the changes begin.",
        )
    return whole


def _manifest(settings: Any, sections: Sequence[Section]) -> dict[str, Any] | None:
    """Return the manifest of the active bundle, if the folder of bundles has that very bundle."""
    facts = dict(row for row in sections[0].grids[0].rows if len(row) == 2)
    version, _, digest = facts["bundle"].partition(", sha256:")
    folder = settings.bundle_folder
    for place in (folder / facts["model"] / version.removeprefix("version "), folder):
        try:
            content = (place / "manifest.json").read_bytes()
        except OSError:
            continue
        if hashlib.sha256(content).hexdigest() == digest:
            found: dict[str, Any] = json.loads(content)
            return found
    return None


def _markdown(model: str, sections: Sequence[Section]) -> str:
    lines = [f"# Dossier of {_plain(model)}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for note in section.notes:
            lines += [_plain(note), ""]
        for grid in section.grids:
            if grid.rows:
                lines.append(f"| {' | '.join(grid.columns)} |")
                lines.append(f"|{'---|' * len(grid.columns)}")
                lines += [f"| {' | '.join(map(_plain, row))} |" for row in grid.rows]
            else:
                lines.append(f"No entry: {', '.join(grid.columns)}.")
            lines.append("")
    return "\n".join(lines)


def _typesetter() -> Any:
    """Return the module that makes PDF.

    Raises:
        ConfigurationError: The extra `pdf` is not installed.
    """
    from service.errors import ConfigurationError

    try:
        import typst
    except ImportError as error:
        raise ConfigurationError(
            "PDF requires typst, which is not installed.",
            where="--pdf",
            found=str(error),
            remedy="Install the extra `pdf`, or print the output of --html.",
        ) from error
    return typst


def _pdf(typesetter: Any, model: str, sections: Sequence[Section]) -> bytes:
    """Return the dossier as PDF/A, for archives: its fonts are in it, and no letter may be missing.

    Raises:
        ConfigurationError: No font has a letter.
    """
    from service.errors import ConfigurationError

    texts = {"title": shown(f"Dossier of {model}"), "sections": _shown_json(sections)}
    template = Path(__file__).with_suffix(".typ").read_bytes()
    try:
        made: bytes = typesetter.compile(template, format="pdf", sys_inputs=texts, pdf_standards=["a-2b"])
    except typesetter.TypstError as error:
        raise ConfigurationError(
            "The dossier cannot be typeset.",
            where="--pdf",
            found=str(error),
            remedy="If letters are missing, install a font that has them, such as one of Noto's, or use --html.",
        ) from error
    return made


def _shown_json(sections: Sequence[Section]) -> str:
    def told(part: Any) -> Any:
        return shown(part) if isinstance(part, str) else [told(each) for each in part]

    return json.dumps(told(sections))


def _plain(text: str) -> str:
    return _ACTIVE.sub(r"\\\1", " ".join(text.split()))


def _html(model: str, sections: Sequence[Section]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

    title = html.escape(f"Dossier of {model}")
    parts = [f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>']
    parts.append(f"<h1>{title}</h1>")
    for section in sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        parts += [f"<p>{html.escape(note)}</p>" for note in section.notes]
        for grid in section.grids:
            if grid.rows:
                parts.append(f"<table>{row(grid.columns, 'th')}{''.join(row(one, 'td') for one in grid.rows)}</table>")
            else:
                parts.append(f"<p>No entry: {html.escape(', '.join(grid.columns))}.</p>")
    return "\n".join(parts) + "\n"
