"""Real vehicle claims: a precision that can be promised, and one that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import bundle as bundles
from bundle import Bundle
from candor import Client, InvalidRequestError
from examples.trained import train
from service.commands.output import print_certificates
from training import DataError, TrainConfig
from training.data.vehicle_fraud import FILE, VEHICLE_FRAUD

MODEL = "claims"
POLICY = "triage"
TOO_MUCH = 0.95
WORST = 0.05


def missing(data: Path | None) -> str | None:
    """Return why the vehicle claims cannot be read; None if their file is there."""
    try:
        VEHICLE_FRAUD.find(data, FILE)
    except DataError as error:
        return str(error)
    return None


def learn(root: Path, epochs: int, seed: int, data: Path | None, console: Console) -> Bundle | None:
    """Train on the vehicle claims; return None if their file is missing.

    Args:
        root: Folder of bundles.
        epochs: Passes over 9,000 claims.
        seed: Seed of the network and the split.
        data: Folder of data sets; None for CANDOR_DATA.
        console: Receives the output.
    """
    config = TrainConfig(
        dataset="vehicle_fraud",
        data=data,
        model="table_cnn",
        name=MODEL,
        calibrator="platt",
        train_rows=9_000,
        reference_rows=6_400,
        fit_share=0.2,
        certify_share=0.75,  # certifying a precision close to the actual one needs many rows, Platt scaling few
        epochs=epochs,
        batch_size=256,
        learning_rate=3e-3,
        weight_decay=3.0,
        dropout=0.5,
        schedule="cosine",
        seed=seed,
    )
    try:
        return bundles.verify(train(config, root, console, what="the same network on 9,000 vehicle claims"))
    except DataError as error:
        console.print(f"[dim]Without the vehicle claims: {error}[/dim]")
        return None


def refused(url: str, bundle: Bundle, console: Console) -> dict[str, Any]:
    """Request a precision that these claims cannot reach, and show the one that they reach.

    Returns:
        Whether the modest promise is certified, and how the service refuses the other.
    """
    parts = (bundle.reference.fit, bundle.reference.certify, bundle.reference.gate)
    labels = np.concatenate([part.labels for part in parts])
    stated = np.concatenate([bundle.calibrator.predict_proba(part.logits)[:, 1] for part in parts])
    worst = np.argsort(-stated)[: round(WORST * len(stated))]
    reached, base_rate = float(labels[worst].mean()), float(labels.mean())
    console.print(
        f"{base_rate:.1%} of the claims are fraudulent; among the {WORST:.0%} with the highest scores, {reached:.1%}"
    )
    with Client(url, model=MODEL) as client:
        solved = client.revision("r1").policies[POLICY]
        certified = {band.action: band.certificate for band in solved.bands if band.certificate}
        print_certificates(POLICY, certified, console)
        wanted = {
            "positive": "fraud",
            "bands": [{"action": "block", "when": {"min_precision": TOO_MUCH}}, {"action": "allow"}],
            "on_uncertifiable": "fail",
        }
        noted: dict[str, Any] = {"reached": reached, "modest": certified["investigate"].valid, "refused": None}
        try:
            client.put_policy("block-for-sure", wanted)
        except InvalidRequestError as error:
            console.print(f"A promised precision of {TOO_MUCH:.0%} is refused: [yellow]{error.status} {error}[/yellow]")
            noted["refused"] = {"kind": error.kind, "where": error.where, "detail": str(error)}
    return noted
