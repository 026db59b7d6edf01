"""`candor bundle`: sign bundles, and verify signatures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from service.commands.output import console, print_json, reporting

app = typer.Typer(no_args_is_help=True, help="Sign bundles, and verify them.")

Folder = Annotated[Path, typer.Argument(help="Folder of a bundle: MODEL/VERSION.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON, for scripts.")]


@app.command()
def sign(
    folder: Folder,
    key: Annotated[Path, typer.Option(help="File of an Ed25519 private key (PEM, without a password).")],
    as_sigstore: Annotated[
        bool, typer.Option("--sigstore", help="Write a Sigstore bundle (v0.3), manifest.json.sigstore.json.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify a bundle, and add a signature of it to its folder.

    Services with CANDOR_TRUSTED_KEYS refuse bundles that none of these keys has signed. Signing again with another key
    keeps the signatures that are there. `openssl genpkey -algorithm ed25519 -out signing.pem` makes a key.
    """
    from bundle import BundleError, signatures
    from service.errors import ConfigurationError
    from service.serving.verification import verified

    with reporting():
        found = verified(folder)
        try:
            signed_by = signatures.sign(found, signatures.private_key(key), as_sigstore=as_sigstore)
        except (BundleError, OSError) as error:
            raise ConfigurationError(f"The bundle cannot be signed: {error}", where="--key") from error
    if as_json:
        print_json({"bundle": found.id, "signed_by": signed_by})
        return
    console.print(f"{escape(str(folder))}: bundle {found.id} signed by key {signed_by}", soft_wrap=True)


@app.command()
def verify(
    folder: Folder,
    trusted: Annotated[
        str | None,
        typer.Option("--trusted", envvar="CANDOR_TRUSTED_KEYS", help="Ed25519 public keys (PEM), or a file of them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify a bundle as the service does: every byte and, with trusted keys, the signature. The model is not run."""
    from service.serving.verification import trusted_keys, verified

    with reporting():
        found = verified(folder, trusted_keys(trusted, where="--trusted (or CANDOR_TRUSTED_KEYS)"))
    if as_json:
        print_json({"bundle": found.id, "signed_by": found.signed_by})
        return
    signed = "signatures not checked" if found.signed_by is None else f"signed by key {found.signed_by}"
    console.print(f"{escape(str(folder))}: bundle {found.id}, complete; {signed}", soft_wrap=True)
