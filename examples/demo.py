"""The main job in five beats: train, calibrate, serve, drift, recalibrate, roll back. Run it with `make demo`.

It trains a CNN on scikit-learn's digits, runs the service in a separate process, and talks to it over HTTP. Bundle,
state, log and reliability diagrams stay in var/demo (or $CANDOR_DEMO).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.table import Table

from calibrators import metrics, reliability_diagram, softmax
from candor import Client, ConflictError
from candor.contract.predictions import Decision, Prediction
from examples.serving import ROOT, service
from examples.trained import train
from service.commands.output import print_certificates, print_recalibration
from training import TrainConfig
from training.data import drift

FOLDER = Path(os.environ.get("CANDOR_DEMO", ROOT / "var" / "demo"))
SEED = 9
ROWS_PER_REQUEST = 100
TERMS = """
ECE is the mean gap between confidence and accuracy over 15 bins. It is positive even for a calibrated model,
by chance: the line below it shows how much on as many rows (its null), and only a larger value means something.
Refinement is how well confidence separates right from wrong answers. A recalibration hardly changes it.
A look is one attempt to pass the gate on these rows. Each further attempt gets a smaller alpha, so that nobody
passes by trying often."""
console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


def main() -> None:
    """Tell the story."""
    began = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    config = TrainConfig(dataset="digits", seed=SEED)
    data, parts = config.load()
    bundle = train(config, FOLDER / "bundles", console, what=f"LeNet-5 on {len(parts.train)} digits")
    rows = parts.feedback
    images, labels = data.inputs[rows], [data.label_names[label] for label in data.labels[rows]]

    with service(FOLDER, ROOT / "examples" / "policies", console) as url, Client(url) as client:
        one_image(client, url)
        clean = predict(client, images, "clean images", policy=None)
        overconfident_and_mended(bundle, images, data.labels[rows], clean)
        for policy, solved in client.revision("r1").policies.items():
            print_certificates(policy, {band.action: band.certificate for band in solved.bands}, console)
        console.print(Rule("3  The lamp dims"))
        dark = drift.dim(images, seed=SEED)
        dimmed_at = datetime.now(UTC).isoformat()
        before = predict(client, dark, "dimmed images")
        compare({"clean": decided(client, clean), "dimmed": before}, labels)
        console.print(Rule("4  Labels come in, the service recalibrates"))
        feedback(client, before, labels)
        answer = client.recalibrate(mode="propose")
        print_recalibration(answer, console)
        console.print(TERMS, style="dim")
        if not answer.gate.passed or answer.revision is None:
            sys.exit("The gate refused the recalibration, so the demo ends here.")
        moved = client.activate(answer.revision, epoch=answer.epoch, accept_change=True, reason="the lamp is dim")
        epoch = moved.epoch
        relabelled_until = datetime.now(UTC).isoformat()
        console.print(f"\nRevision [bold]{answer.revision}[/bold] is active; the same digits, dimmed with other noise:")
        after = predict(client, drift.dim(images, seed=SEED + 1), "dimmed images")
        compare({f"{answer.base}, before": before, f"{answer.revision}, after": after}, labels)
        diagrams({"before": before, "after": after}, labels, data.label_names)
        console.print("\nA second recalibration on the same labels is refused:")
        again = client.recalibrate(mode="propose", since=dimmed_at, until=relabelled_until)
        console.print(f"  [yellow]{again.summary}[/yellow]")
        console.print(
            f"  look {again.gate.attempt} at alpha {again.gate.alpha:.4f}, upper bound {again.gate.upper:+.4f}"
        )
        console.print(Rule("5  Roll back"))
        try:
            client.rollback(epoch=answer.epoch, reason="the lamp was replaced")
        except ConflictError as error:
            console.print(f"with the epoch from before the activation: {error.status} {error}")
        moved = client.rollback(epoch=epoch, reason="the lamp was replaced")
        console.print(f"with the current epoch: [bold]{moved.active}[/bold] is active again (epoch {moved.epoch})")
        history(client)
    ending(time.monotonic() - began)


def overconfident_and_mended(
    bundle: Path, images: NDArray[np.uint8], truth: NDArray[np.int64], served: list[Prediction]
) -> None:
    """Compare the service's probabilities with the network's plain softmax."""
    network = onnxruntime.InferenceSession(bundle / "model.onnx")
    plain = softmax(network.run(["logits"], {"input": images})[0])
    calibrated = np.array([list(prediction.probabilities.values()) for prediction in served], dtype=np.float32)
    console.print(Rule("1  Trained, and overconfident"))
    console.print(
        f"On {len(images)} new images the network's accuracy is {metrics.accuracy(plain, truth):.1%}, "
        f"but its mean confidence is {plain.max(axis=1).mean():.1%}."
    )
    console.print(Rule("2  Calibrated"))
    temperature = json.loads((bundle / "calibrator.json").read_text())["temperature"]
    console.print(f"Calibration divides the logits by a number fitted on reference images: T = {temperature:.2f}")
    table = Table("", "as trained", "as served", "difference, 95 % interval", box=None, pad_edge=False)
    for name, losses in (("log loss (nats)", metrics.log_losses), ("Brier score", metrics.squared_errors)):
        before, after = losses(plain, truth), losses(calibrated, truth)
        interval = metrics.paired_interval(after, before)
        table.add_row(
            name,
            f"{before.mean():.4f}",
            f"{after.mean():.4f}",
            f"{interval.estimate:+.4f}  ({interval.low:+.4f} to {interval.high:+.4f})",
        )
    ece = [
        f"{test.error:.3f}  (if calibrated: {test.null_mean:.3f})"
        for test in (metrics.calibration_test(side, truth) for side in (plain, calibrated))
    ]
    table.add_row("ECE, 15 bins", *ece, "")
    console.print(table)


def one_image(client: Client, url: str) -> None:
    """Print a request and its answer."""
    console.print(
        f"curl -H 'Content-Type: image/png' --data-binary @examples/seven.png '{url}/predict?policy=auto-read&top=2'",
        style="dim",
    )
    answer = client.predict_file(ROOT / "examples" / "seven.png", policy="auto-read", top=2)
    console.print_json(json.dumps(answer.document))


def predict(client: Client, images: NDArray[np.uint8], name: str, policy: str | None = "auto-read") -> list[Prediction]:
    """Send images over HTTP and return the predictions, decided by a policy."""
    predictions: list[Prediction] = []
    columns = (TextColumn(f"  predicting {len(images)} {name}"), BarColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=len(images))
        for start in range(0, len(images), ROWS_PER_REQUEST):
            part = images[start : start + ROWS_PER_REQUEST]
            predictions += client.predict(part, policy=policy).predictions
            bar.advance(task, len(part))
    return predictions


def decided(client: Client, predictions: list[Prediction]) -> list[Prediction]:
    """Return predictions with what the policy auto-read says of them.

    They were made without it, so that no label of theirs is sought: the recalibration would have to wait for it.
    """
    bands = client.revision("r1").policies["auto-read"].bands

    def decision(confidence: float) -> Decision:
        fits = (band.action for band in bands if band.threshold is None or confidence >= band.threshold.probability)
        return Decision(action=next(fits), label_sought=False)

    return [one.model_copy(update={"decision": decision(one.confidence)}) for one in predictions]


def compare(sides: dict[str, list[Prediction]], labels: list[str]) -> None:
    """Print accuracy, confidence and actions of each side."""
    columns = ("", "accuracy", "mean confidence", "accepted", "right among them", "review", "block")
    table = Table(*columns, box=None, pad_edge=False)
    for name, predictions in sides.items():
        right = [prediction.label == label for prediction, label in zip(predictions, labels, strict=True)]
        actions = Counter(action(prediction) for prediction in predictions)
        accepted = [ok for ok, prediction in zip(right, predictions, strict=True) if action(prediction) == "accept"]
        table.add_row(
            name,
            f"{np.mean(right):.1%}",
            f"{np.mean([prediction.confidence for prediction in predictions]):.1%}",
            f"{actions['accept'] / len(predictions):.1%}",
            f"{np.mean(accepted):.1%}" if accepted else "—",
            f"{actions['review'] / len(predictions):.1%}",
            f"{actions['block'] / len(predictions):.1%}",
        )
    console.print(table)


def action(prediction: Prediction) -> str | None:
    """Return the action of a prediction; None without a decision."""
    return prediction.decision.action if prediction.decision else None


def feedback(client: Client, predictions: list[Prediction], labels: list[str]) -> None:
    """Send the true labels and print how many were stored."""
    items = [
        {"prediction_id": prediction.prediction_id, "label": label, "source": "reviewer"}
        for prediction, label in zip(predictions, labels, strict=True)
    ]
    receipt = client.feedback(items)
    console.print(f"{receipt.stored} labels stored durably")


def diagrams(sides: dict[str, list[Prediction]], labels: list[str], names: tuple[str, ...]) -> None:
    """Draw the reliability diagrams of the dimmed images before and after recalibration."""
    truth = np.array([names.index(label) for label in labels])
    for side, predictions in sides.items():
        probabilities = np.array([[prediction.probabilities[name] for name in names] for prediction in predictions])
        figure = reliability_diagram(probabilities, truth, title=f"Dimmed images, {side} recalibration")
        figure.savefig(FOLDER / f"reliability-{side}.svg")


def history(client: Client) -> None:
    """List the revisions."""
    table = Table("revision", "state", "cause", "gate", "summary", box=None, pad_edge=False)
    for item in client.revisions().items:
        table.add_row(item.id, item.state, item.cause, item.gate, item.summary or "—")
    console.print(table)


def ending(seconds: float) -> None:
    """Print where the files are and what to try next."""
    console.print(Rule())
    console.print(
        f"That took {seconds:.0f} s. Bundle, state, log and diagrams are in {FOLDER}.\n\n"
        "Try next:\n"
        "  make serve                               start the service and print a curl command\n"
        "  http://127.0.0.1:8000/docs               all endpoints, with examples\n"
        "  .venv/bin/candor predict examples/seven.png --policy auto-read\n"
        "  .venv/bin/candor-train train --help      train your own model\n"
        "  examples/policies/digits/                the policies of this demo"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; var/demo keeps the partial results")
