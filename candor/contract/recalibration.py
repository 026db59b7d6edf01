"""Recalibration: fit the calibrator again on labelled rows, and what came of it."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from candor.contract.certificates import PolicyCertificates, Thresholds
from candor.contract.changes import DecisionChanges
from candor.contract.documents import Answer, Body, Text
from candor.contract.gate import Gate, GateMode
from candor.contract.metrics import ConfidenceHistogram, Decomposition, MetricChange, Reliability
from candor.contract.times import Time
from candor.contract.traffic import TrafficChange

Mode = Literal["dry_run", "propose", "activate"]
UnknownPropensity = Literal["exclude", "fit"]


class ImplicitNegative(Body):
    """The meaning of a source's silence. It is an assumption: such rows fit, but never certify or gate."""

    label: Text = Field(description="Label that silence means.")
    source: Text = Field(max_length=100, description="Source that is silent: chargebacks, complaints …")
    maturity_days: float = Field(gt=0, le=3650, description="Days after which the source would have reported.")
    actions: list[Text] = Field(
        min_length=1,
        max_length=20,
        description="Silence counts only for rows with one of these actions: nobody complains about what was blocked.",
    )


class FeedbackSource(Body):
    """The labelled traffic to recalibrate on."""

    since: Time | None = Field(None, description="Predictions made at or after this time.")
    until: Time | None = Field(None, description="Predictions made before this time.")
    unknown_propensity: UnknownPropensity = Field(
        "exclude", description="Whether labels that were not sought may enter the fit. They never certify or gate."
    )
    implicit_negative: ImplicitNegative | None = Field(
        None, description="Use a source's silence as a label; default: silence means nothing."
    )
    rescore: bool = Field(
        False,
        description="Score stored inputs of earlier bundles (CANDOR_KEEP_INPUTS) again with the active model, and add "
        "them. Not for a model that was trained on these rows.",
    )


class RecalibrationSource(Body):
    """The rows to recalibrate on: labelled traffic or an uploaded labelled set."""

    feedback: FeedbackSource | None = Field(None, description="Labelled traffic; the default.")
    labelled_set: str | None = Field(None, description="Id of a labelled set, such as `ls1`.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.feedback is not None and self.labelled_set is not None:
            raise PydanticCustomError("one_source", "Rows come from one of feedback and labelled_set, never from both")
        return self


class RecalibrationLimits(Body):
    """Limits on what a recalibration may change. They can only tighten the operator's. Upper bounds must meet them."""

    unidentified: float | None = Field(None, ge=0, le=1, description="Share of rows that no label represents.")
    missing: float | None = Field(
        None, ge=0, le=1, description="Share of sought labels that have not arrived, or that the model lacks."
    )
    flipped: float | None = Field(None, ge=0, le=1, description="Share of a policy's decisions that change.")
    flag_rate: float | None = Field(None, ge=0, le=1, description="Share of rows that get the first band's action.")
    flag_rate_ratio: float | None = Field(None, gt=0, description="That share after divided by before.")
    probability_change: float | None = Field(
        None, ge=0, le=1, description="Largest change of a class probability in 99 % of the rows."
    )
    calibration_error: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Upper bound (97.5 %) of the calibration error afterwards, of the predicted label and of each "
        "policy's positive class.",
    )


class RecalibrationRequest(Body):
    """What to recalibrate, on which rows, and what to do with the result."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "mode": "dry_run",
                "calibrator": "temperature",
                "source": {"feedback": {"since": "2026-11-01T00:00:00Z"}},
            }
        }
    )

    mode: Mode = Field(
        "dry_run",
        description="`dry_run` keeps nothing, `propose` keeps a proposal, `activate` also activates it if the gate "
        "passes (scope `approve`).",
    )
    calibrator: str | None = Field(
        None,
        description="Calibration method, such as `temperature`; an unknown name is refused with the list of known "
        "ones. `multicalibration` requires `columns`. Default: the method of the active calibrator. `unchanged` keeps "
        "the calibrator and solves only the policies on labelled traffic.",
    )
    columns: tuple[Text, ...] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="For `multicalibration`: columns of the model whose values and ranges are to be calibrated each. "
        "Requires two labels and CANDOR_KEEP_INPUTS=all. Default: those of the active calibrator.",
    )
    gate: GateMode = Field("superior", description="What the gate must show; `activate` requires `superior`.")
    limits: RecalibrationLimits = RecalibrationLimits()
    source: RecalibrationSource = RecalibrationSource()


class TrafficUsed(Answer):
    """The labelled traffic that was asked for."""

    since: str | None = None
    until: str | None = None
    unknown_propensity: UnknownPropensity | None = None
    rescore: bool | None = None


class SourceUsed(Answer):
    """Where the rows and their labels came from: `feedback`, or the other fields, which describe a labelled set."""

    feedback: TrafficUsed | None = None
    labelled_set: str | None = None
    sha256: str | None = Field(None, description="Digest of the labelled set.")
    represents: Literal["traffic"] | None = Field(
        None, description="Whether the labelled set was declared a random sample of the traffic."
    )
    rows: int | None = Field(None, description="Rows of the labelled set.")
    kind: Literal["logits", "inputs"] | None = Field(
        None, description="`inputs`: scored by the active model; `logits`: the model's outputs as they were uploaded."
    )
    uploaded_by: str | None = Field(None, description="Name of the API key that uploaded the labelled set.")
    uploaded_by_key: str | None = Field(None, description="Prefix of that key, or the id of the person.")
    uploaded_at: str | None = Field(None, description="Time of the upload (ISO 8601, UTC).")


class CalibrationEvidence(Answer):
    """What gate rows say about the calibration of a part."""

    ece: float = Field(description="Expected calibration error over 15 bins.")
    null_q95: float = Field(description="Its 95 % quantile if the probabilities were calibrated.")
    upper: float | None = Field(
        description="With confidence 97.5 %, the root of the mean squared calibration error over ten fixed bins is at "
        "most this. Null in some reports of earlier versions."
    )


class CalibrationPart(Answer):
    """Calibration of the predicted label or of one class, of all rows, of one segment or of a value of a column."""

    label: str | None = Field(description="Class whose probability it is about; null for the predicted label.")
    segment: str | None = Field(description="Segment of the rows; null for all.")
    column: str | None = Field(None, description="Column of a multicalibration; null for other parts.")
    value: str | None = Field(
        None,
        description="Value of the column that the rows have, or range; `other` for rare, unknown and missing ones.",
    )
    required: bool = Field(description="Whether a limit on the calibration error (`calibration_error`) is about it.")
    rows: int
    before: CalibrationEvidence
    after: CalibrationEvidence


class CalibratorChange(Answer):
    """Calibrators before and after; `omitted` in one of them lists fields that are too long to show."""

    before: dict[str, Any]
    after: dict[str, Any]


class RowCounts(Answer):
    """Rows of a recalibration by what they were used for."""

    fit: int
    certify: int
    gate: int
    implicit: int = Field(description="Fit rows labelled by a source's silence.")
    pending: int = Field(description="Labels whose prediction is unknown so far.")
    rescored: int = Field(description="Rows of earlier bundles that were scored again.")
    conflicts: int = Field(description="Rows with conflicting labels.")
    unknown_labels: int = Field(
        description="Rows with a label that the model does not know: they count as rows without a label."
    )
    effective_fit: float = Field(description="Number of equally weighted rows that the weighted fit rows are worth.")
    unlabelled_share: float = Field(
        1.0,
        description="Share of the groups whose unlabelled rows were read, and whose rows certify; below 1 in a window "
        "of many predictions.",
    )
    left_out_before: str | None = Field(
        None,
        description="Rows before this time, if any, are left out: by the row limit, because an input that the "
        "calibrator reads is not stored, or because an alarm found propensities wrong. Null without such a reason.",
    )


class DoubleLabels(Answer):
    """What rows that two people or sources labelled say about wrong labels.

    Assumes that the two labels of a row are given independently, and that on every row the right class is the one most
    probably given.
    """

    rows: int = Field(description="Rows with labels of two people or sources, one of each group.")
    differ: int = Field(description="Rows among them whose labels differ.")
    wrong: float | None = Field(
        description="Estimated share of wrong labels, if both are wrong equally often on all rows and, where both are, "
        "with the same class; null without rows."
    )
    upper: float = Field(
        description="With confidence 95 %, the probability that the label of such a row is wrong is at most this, on "
        "average over the rows. The share of wrong ones among the labels at hand varies around that. It says nothing "
        "about other rows if second labels are sought for doubtful rows only."
    )


class PolicyReport(PolicyCertificates):
    """What a recalibration makes of a policy."""

    before: Thresholds
    after: Thresholds
    lost: tuple[str | None, ...] = Field(
        description="Segments that lost their certificates; null stands for a policy without segments."
    )
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = Field(description="Where nothing is certified, and how many labels are missing.")


class Took(Answer):
    """What a recalibration cost."""

    seconds: dict[str, float] = Field(description="By step.")
    processor_seconds: float
    peak_memory_mib: int


class RecalibrationReport(Answer):
    """What a recalibration found."""

    job: str
    model: str
    base: str = Field(description="Revision that it was compared with.")
    epoch: int = Field(description="Epoch to activate it with.")
    mode: Mode
    source: SourceUsed
    calibrator: CalibratorChange
    rows: RowCounts
    double_labels: DoubleLabels | None = Field(
        None, description="How often labels are wrong; null for uploaded rows and in reports of earlier versions."
    )
    implicit_negative: ImplicitNegative | None
    gate: Gate
    metrics: dict[str, MetricChange] = Field(
        description="On the gate rows: `nll`, `brier`, `accuracy`, `refinement_auroc`, `debiased_calibration_error` "
        "(squared), `ece`."
    )
    calibration: tuple[CalibrationPart, ...] = Field(
        (),
        description="On the gate rows: the predicted label, the positive class of each policy and the most frequent "
        "classes, and the same by segment; for `multicalibration`, the positive class of the first policy by value and "
        "range of each column with 100 gate rows or more.",
    )
    decomposition: Decomposition
    reliability: Reliability
    confidence: ConfidenceHistogram
    decisions: DecisionChanges = Field(description="On the gate rows.")
    policies: dict[str, PolicyReport]
    summary: str = Field(description="One sentence.")
    warnings: tuple[str, ...] = Field(
        (),
        description="Whether the ECE after the fit is above the 95 % quantile of a calibrated model; labels that the "
        "model lacks, or that are wrong more often than a policy assumes.",
    )
    read_at: str = Field(
        description="When the rows were read (ISO 8601, UTC); from a read replica, every row until then was."
    )
    read_from: Literal["primary", "replica"] = Field(
        "primary", description="Database that was read; the primary also if the read replica lagged behind."
    )
    log_files: int = Field(0, description="Number of hours of the log that were read from files of the log sink.")
    log_files_passed_over: int = Field(
        0,
        description="Number of hours that were read from the database although they have a file: it has other rows, "
        "such as erased ones, or lacks rows that came late.",
    )
    took: Took


class Recalibration(RecalibrationReport):
    """What a recalibration found, and what came of it."""

    revision: str | None = Field(description="The proposal; null for a dry run.")
    state: Literal["dry_run", "refused", "proposed", "active"]
    traffic: TrafficChange | None = Field(
        None, description="What an automatic activation does, or would do, to recent predictions; null without one."
    )
