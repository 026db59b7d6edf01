"""Verification of bundles: complete, in the right folder, and the bundle that a revision was made from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import bundle as bundles
from bundle import Bundle, BundleError, BundleLocation
from bundle.errors import SignatureError
from service.decisions.revision import Revision
from service.errors import BundleRefusedError, ConfigurationError

if TYPE_CHECKING:
    from bundle.signatures import TrustedKeys

# In the Open Inference Protocol /v2/models/stats returns statistics of all models, not metadata of one.
TAKEN_NAMES = frozenset({"stats"})


def trusted_keys(setting: str | None, *, where: str = "CANDOR_TRUSTED_KEYS") -> TrustedKeys | None:
    """Return the keys of a setting, a file or a value; None if it is not set.

    Args:
        setting: The value.
        where: Name of the setting, for the message.

    Raises:
        ConfigurationError: A key or the file cannot be read.
    """
    if setting is None:
        return None
    from bundle.signatures import TrustedKeys

    try:
        is_value = "\n" in setting or "BEGIN" in setting or setting.startswith("MC")  # of each such key in Base64
        return TrustedKeys(setting if is_value else Path(setting).read_text(encoding="utf-8"))
    except (BundleError, OSError, ValueError) as error:
        raise ConfigurationError(
            f"The trusted keys cannot be read: {error}",
            where=where,
            found=setting[:60],
            expected="Ed25519 public keys as PEM, or the path of a file of them",
        ) from error


def verified(path: Path, trusted: TrustedKeys | None = None) -> Bundle:
    """Return the bundle in any folder.

    Args:
        path: The folder.
        trusted: Keys of which one must have signed it; None to accept every bundle.

    Raises:
        BundleRefusedError: It is damaged or missing, or no trusted key has signed it.
    """
    try:
        found = bundles.verify(path)
        return found if trusted is None else replace(found, signed_by=trusted.signer(found))
    except BundleError as error:
        raise BundleRefusedError(
            f"Bundle {path} cannot be used: {_in_file(error)}.",
            where=error.file,
            found=error.found,
            expected=error.expected,
            remedy="Sign it with a trusted key: candor bundle sign. CANDOR_TRUSTED_KEYS names the keys."
            if isinstance(error, SignatureError)
            else "Restore the folder as it was exported; do not change files in it.",
        ) from error


def verified_in_place(location: BundleLocation, trusted: TrustedKeys | None = None) -> Bundle:
    """Return the bundle at a location: of this model and version.

    Raises:
        BundleRefusedError: It is damaged or missing, belongs in another folder, has a reserved name, or is not signed.
    """
    found = verified(location.path, trusted)
    manifest = found.manifest
    if manifest.model in TAKEN_NAMES:
        raise BundleRefusedError(
            f"Bundle {found.path} is refused: the model name {manifest.model!r} is reserved for a path of the service.",
            where="manifest.json",
            found=manifest.model,
            expected=f"any name except {', '.join(sorted(TAKEN_NAMES))}",
            remedy="Export it under another name: candor-train export … --name NAME.",
        )
    if (location.model, location.version) != (manifest.model, manifest.version):
        raise BundleRefusedError(
            f"Bundle {found.path} is refused: its manifest names another model or version.",
            where="manifest.json",
            found=f"{manifest.model}/{manifest.version}",
            expected=f"{location.model}/{location.version}",
            remedy="Keep each bundle in the folder <model>/<version> that its manifest names.",
        )
    return found


def bundle_of(folder: Path, revision: Revision, trusted: TrustedKeys | None) -> Bundle:
    """Return the bundle that a revision was made from.

    Args:
        folder: Folder of bundles.
        revision: The revision.
        trusted: Keys of which one must have signed it; None to accept every bundle.

    Raises:
        BundleRefusedError: It is damaged, missing, not signed or a different bundle.
    """
    found = verified_in_place(bundles.locate(folder, revision.model, revision.bundle_version), trusted)
    check_is(found, revision)
    return found


def check_is(found: Bundle, revision: Revision) -> None:
    """Raise BundleRefusedError unless a revision was made from this bundle."""
    if found.id != revision.bundle_id:
        raise BundleRefusedError(
            f"Bundle {found.path} differs from the bundle of revision {revision.id}.",
            where="manifest.json",
            found=found.id,
            expected=revision.bundle_id,
            remedy="Restore the original folder. Export a changed model as a new version.",
        )


def _in_file(error: BundleError) -> str:
    return error.message if error.file is None else f"{error.file}: {error.message}"
