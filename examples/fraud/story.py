"""The story, beat by beat."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import yaml
from numpy.typing import NDArray
from rich.console import Console
from rich.rule import Rule

import bundle as bundles
from bundle import Bundle
from calibrators import metrics
from candor import Client
from examples.fraud import claims
from examples.fraud.comparison import Side, compare, hold_against_truth, outcome_of
from examples.fraud.generator import LABEL, OUTCOMES, Payments, payments
from examples.fraud.plots import calibration_plot, promise_plot
from examples.fraud.refits import METHOD, against_truth, naive, weighted
from examples.fraud.traffic import POLICY, Labels, Served, labels_of, predict, write_labels
from examples.serving import ROOT, service
from examples.trained import train
from service.commands.output import print_certificates, print_recalibration
from training import TrainConfig

POLICIES = Path(__file__).parent / "policies"
MODEL = "payments"
DRIFT = -2.5  # in log-odds, of every payment
EARLY = 0.6


@dataclass(frozen=True)
class Size:
    """Numbers of payments and epochs.

    Attributes:
        train: Training payments.
        epochs: Passes over them.
        reference: Reference payments in the bundle.
        before: Payments decided before the base rate drifts.
        drifted: Payments decided after the drift.
        after: Payments decided after the recalibration.
        claims_epochs: Passes over the vehicle claims.
    """

    train: int = 24_000
    epochs: int = 6
    reference: int = 12_000
    before: int = 40_000
    drifted: int = 150_000
    after: int = 20_000
    claims_epochs: int = 10


SMALL = Size(train=16_000, epochs=5, before=40_000, drifted=120_000, after=15_000)


class Story:
    """Tells the story beat by beat and records its figures.

    Args:
        folder: Output folder.
        size: Numbers of payments and epochs.
        seed: Seed of payments, network and labels.
        data: Folder of data sets; None for CANDOR_DATA.
        console: Receives the output.
    """

    def __init__(self, folder: Path, size: Size, seed: int, data: Path | None, console: Console) -> None:
        self.folder, self.size, self.seed, self.data, self.console = folder, size, seed, data, console
        self.noted: dict[str, Any] = {}
        policy = yaml.safe_load((POLICIES / MODEL / f"{POLICY}.yaml").read_text())
        self.explored: float = policy["explore"]["share"]
        self.promised: tuple[float, float] = (
            policy["bands"][0]["when"]["min_precision"],
            policy["bands"][1]["when"]["max_flag_rate"],
        )

    def tell(self) -> None:
        """Tell the whole story."""
        self.beat(1, "A network, and payments with a known truth")
        bundle = self.learn()
        real = claims.learn(self.folder / "bundles", self.size.claims_epochs, self.seed, self.data, self.console)
        with service(self.folder, POLICIES, self.console) as url, Client(url, model=MODEL) as client:
            self.beat(2, "A policy under a review budget")
            before = self.decide_before(client)
            self.beat(3, "A precision that real claims cannot reach")
            self.noted["claims"] = None if real is None else claims.refused(url, real, self.console)
            self.beat(4, "Labels come late")
            self.late_labels(client, url, before)
        self.beat(5, "Fraud becomes rarer")
        self.console.print(
            "A new state: a recalibration reads all payments of its state, and choosing some costs delta."
        )
        state = f"sqlite:///{self.folder / 'drifted.db'}"
        with (
            service(self.folder, POLICIES, self.console, CANDOR_DATABASE_URL=state) as url,
            Client(url, model=MODEL) as client,
        ):
            drifted = self.decide_drifted(client)
            self.beat(6, "Labels exist only for some")
            labels = labels_of(drifted, self.explored, seed=self.seed + 5)
            naively, fairly = self.two_refits(bundle, drifted, labels)
            self.beat(7, "The service recalibrates")
            after = self.recalibrate(client, url, drifted, labels)
            self.draw(before, drifted, after, naively, fairly)
        (self.folder / "story.json").write_text(json.dumps(self.noted, indent=2) + "\n")

    def beat(self, number: int, title: str) -> None:
        """Begin a beat."""
        self.console.print(Rule(f"{number}  {title}"))

    def draw_payments(self, rows: int, offset: int, *, drift: float = 0.0) -> Payments:
        """Draw payments with a seed of this story."""
        return payments(rows, seed=1000 * self.seed + offset, drift=drift)

    def learn(self) -> Bundle:
        """Train on past payments and print the network's log loss."""
        size = self.size
        self.draw_payments(size.train + size.reference, 0).write(self.folder / "payments.csv")
        config = TrainConfig(
            dataset="table",
            data=self.folder,
            data_settings={"file": "payments.csv", "label": LABEL, "label_names": OUTCOMES},
            model="table_cnn",
            name=MODEL,
            calibrator=METHOD,
            train_rows=size.train,
            reference_rows=size.reference,
            epochs=size.epochs,
            batch_size=128,
            learning_rate=3e-3,
            schedule="cosine",
            seed=self.seed,
        )
        what = f"a 1-D CNN on {size.train:,} payments"
        bundle = bundles.verify(train(config, self.folder / "bundles", self.console, what=what))
        unseen = self.draw_payments(20_000, 1)
        logits = logits_of(bundle, unseen)
        stated = bundle.calibrator.predict_proba(logits)
        outcome = unseen.fraud.astype(np.int64)
        loss = metrics.negative_log_likelihood(stated, outcome)
        true = np.column_stack([1 - unseen.probability, unseen.probability])
        least = metrics.negative_log_likelihood(true, outcome)
        self.noted["learned"] = {"log_loss": loss, "least_log_loss": least, "base_rate": unseen.probability.mean()}
        self.console.print(
            f"On {len(unseen):,} new payments, {unseen.probability.mean():.1%} of them fraud, its log loss is "
            f"{loss:.4f};\nthe true probabilities have a log loss of {least:.4f}.\n"
        )
        return bundle

    def decide_before(self, client: Client) -> Served:
        """Serve payments like those of the past."""
        solved = client.revision("r1").policies[POLICY]
        certified = {band.action: band.certificate for band in solved.bands if band.certificate}
        print_certificates(POLICY, certified, self.console)
        served = predict(client, self.draw_payments(self.size.before, 2), self.console, "payments")
        compare({"r1": served}, self.console)
        self.noted["certified"] = {action: certificate.valid for action, certificate in certified.items()}
        self.noted["before"] = outcome_of(served)
        return served

    def late_labels(self, client: Client, url: str, served: Served) -> None:
        """Send the first labels and recalibrate too early."""
        labels = labels_of(served, self.explored, seed=self.seed + 2)
        early = int(EARLY * len(labels.rows))
        said = self.send(url, write_labels(self.folder / "labels-early.csv", served, labels, slice(None, early)))
        self.console.print(
            f"{EARLY:.0%} of the labels have arrived: {said['stored']:,}, as CSV by `candor feedback --file`"
        )
        answer = client.recalibrate(mode="dry_run")
        block = answer.policies[POLICY].certified["block"]
        self.console.print(f"A recalibration on these labels: [yellow]{answer.summary}[/yellow]")
        self.console.print(f"The promise about blocked payments: [yellow]{block.reason}[/yellow]")
        self.send(url, write_labels(self.folder / "labels-late.csv", served, labels, slice(early, None)))
        self.noted["early"] = {"certified": block.valid, "reason": block.reason}

    def decide_drifted(self, client: Client) -> Served:
        """Serve payments after the base rate has fallen."""
        served = predict(client, self.draw_payments(self.size.drifted, 3, drift=DRIFT), self.console, "payments")
        found = against_truth(served.stated, served)
        compare({"r1, after the drift": served}, self.console)
        self.console.print(
            f"Now {found.true:.1%} are fraud, but the service states {found.stated:.1%} on average. "
            f"The policy promises that {self.promised[0]:.0%} of blocked payments are fraud."
        )
        self.noted["drifted"] = outcome_of(served)
        return served

    def two_refits(
        self, bundle: Bundle, served: Served, labels: Labels
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Recalibrate on all labels equally and on sought labels by weight; compare both with the truth."""
        sought = labels.sought
        self.console.print(
            f"{len(sought.rows):,} labels were sought (all reviewed payments, {self.explored:.0%} of the others). "
            f"Customers report {len(labels.rows) - len(sought.rows):,} more frauds, but no genuine payment."
        )
        logits, fraud = logits_of(bundle, served.payments), served.payments.fraud
        naively, every_label = naive(logits, fraud, labels)
        fairly, sought_labels = weighted(logits, fraud, labels)
        sides: dict[str, Side] = {
            "r1": Side("r1, unchanged", served.stated),
            "naive": Side("naive: all labels equal", naively.predict_proba(logits)[:, 1], every_label),
            "weighted": Side("weighted by 1/propensity", fairly.predict_proba(logits)[:, 1], sought_labels),
        }
        self.noted["refits"] = hold_against_truth(sides, served, self.console)
        self.console.print("Labels that were not sought have no propensity, so the weighted recalibration omits them.")
        return sides["naive"].stated, sides["weighted"].stated

    def recalibrate(self, client: Client, url: str, drifted: Served, labels: Labels) -> Served:
        """Send all labels, recalibrate, activate, and predict new payments."""
        said = self.send(url, write_labels(self.folder / "labels.csv", drifted, labels))
        self.console.print(
            f"{said['stored']:,} labels stored, customers' reports included; the recalibration omits those\n"
        )
        answer = client.recalibrate(mode="propose")
        print_recalibration(answer, self.console)
        if not answer.gate.passed or answer.revision is None:
            sys.exit("The gate refused the recalibration, so the story ends here.")
        client.activate(answer.revision, epoch=answer.epoch, reason="fraud became rarer", accept_change=True)
        self.console.print(f"\nRevision [bold]{answer.revision}[/bold] is active; new payments of the same kind:")
        after = predict(client, self.draw_payments(self.size.after, 4, drift=DRIFT), self.console, "payments")
        compare({"r1, after the drift": drifted, answer.revision: after}, self.console)
        block = answer.policies[POLICY].certified["block"]
        self.noted["recalibrated"] = {
            "gate": {"passed": answer.gate.passed, "upper": answer.gate.upper, "attempt": answer.gate.attempt},
            "certified": block.valid,
            "basis": block.basis,
            "rows": answer.rows.document,
        }
        self.noted["after"] = outcome_of(after)
        return after

    def send(self, url: str, labels: Path) -> dict[str, Any]:
        """Upload a CSV of labels as an operator would."""
        command = [sys.executable, "-m", "service.cli", "feedback", "--file", str(labels)]
        done = subprocess.run(
            [*command, "--url", url, "--model", MODEL, "--json"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"The labels were refused:\n{done.stderr}")
        receipt: dict[str, Any] = json.loads(done.stdout)
        return receipt

    def draw(
        self,
        before: Served,
        drifted: Served,
        after: Served,
        naively: NDArray[np.floating],
        fairly: NDArray[np.floating],
    ) -> None:
        """Draw the pictures."""
        phases = {"before": before, "drifted": drifted, "recalibrated": after}
        precision = {name: served.true_precision() for name, served in phases.items()}
        flagged = {name: served.flagged() for name, served in phases.items()}
        promise_plot(self.folder / "promises.svg", precision, flagged, self.promised)
        sides = {"active": drifted.stated, "naive": naively, "weighted": fairly}
        truth = drifted.payments.probability
        calibration_plot(self.folder / "refits.svg", "After the drift, against the truth", sides, truth)
        truth = after.payments.probability
        calibration_plot(self.folder / "recalibrated.svg", "Recalibrated", {"the new revision": after.stated}, truth)


def logits_of(bundle: Bundle, rows: Payments) -> NDArray[np.float32]:
    """Return the network's logits (N, 2), without the service."""
    if bundle.columns is None:
        raise TypeError(f"{bundle.path} is not a bundle of a table")
    network = onnxruntime.InferenceSession(bundle.model_bytes)
    logits: NDArray[np.float32] = network.run(["logits"], {"input": bundle.columns.encode(rows.rows())})[0]
    return logits
