"""`candor policy suggest`: a policy that lints, loads and certifies, written without a look at certify labels."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

import bundle as bundles
from bundle import LabelledLogits
from service.cli import app
from service.decisions.policy import parse_policy
from service.decisions.solve import solve_on_reference
from service.serving.policy_files import read_policies
from tests.service.conftest import contents

DIGITS = Path(__file__).parents[3] / "examples" / "bundles" / "digits" / "1"


def candor(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["policy", *map(str, arguments)])


def test_it_is_written_lints_and_certifies(tmp_path: Path) -> None:
    out = tmp_path / "digits" / "my [first] policy.yaml"
    out.parent.mkdir()
    done = candor("suggest", DIGITS, "--positive", "7", "--out", out)
    assert done.exit_code == 0, done.stderr
    assert "No label of a certify row was read." in done.stdout
    assert "Fewer than 25 rows of '7'" in done.stdout
    assert "0.9 precision needs some" in done.stdout
    assert candor("lint", out, "--bundle", DIGITS).exit_code == 0
    assert done.stdout.splitlines()[-1] == f"candor policy solve '{out}' --bundle {DIGITS}"
    solved = candor(*shlex.split(done.stdout.splitlines()[-1])[2:])
    assert solved.exit_code == 0, solved.stdout
    assert "certified      suggested: block, precision of at least" in solved.stdout

    opened = bundles.verify(DIGITS)
    (policy,) = read_policies(tmp_path, "digits", opened.manifest.labels)
    served = solve_on_reference(policy, version=1, bundle=opened, calibrator=opened.calibrator, look=1)
    assert not served.review_all


def test_it_goes_to_standard_output_as_a_file_or_as_json() -> None:
    text = candor("suggest", DIGITS, "--positive", "7").stdout
    answer = json.loads(candor("suggest", DIGITS, "--positive", "7", "--json").stdout)
    assert parse_policy(yaml.safe_load(text)) == parse_policy(answer["policy"])
    comments = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("#")]
    assert comments == answer["explanation"]
    assert [rung["min_precision"] for rung in answer["rungs"]] == [0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5]
    assert answer["fit_rows"] == 200


def test_a_model_s_name_stands_for_its_newest_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = bundles.verify(DIGITS)
    rows = opened.reference.fit
    fewer = replace(opened.reference, fit=LabelledLogits(rows.logits[:150], rows.labels[:150]))
    for reference in (fewer, opened.reference):
        bundles.write(tmp_path, contents(opened, reference=reference))
    monkeypatch.setenv("CANDOR_BUNDLES", str(tmp_path))
    out = tmp_path / "suggested.yaml"
    done = candor("suggest", "digits", "--positive", "7", "--out", out)
    assert done.exit_code == 0, done.stderr
    assert "from 200 fit rows" in done.stdout
    assert f"--bundle {tmp_path / 'digits' / '2'}" in done.stdout
    missed = candor("suggest", "digit", "--positive", "7")
    assert missed.exit_code == 2
    for told in ("digit is neither a folder nor a model", "digits", "Set CANDOR_BUNDLES"):
        assert told in missed.stderr


def test_rows_per_day_are_promised_and_certified(tmp_path: Path) -> None:
    opened = bundles.verify(DIGITS)
    parts = opened.reference
    more = {
        name: LabelledLogits(np.tile(rows.logits, (9, 1)), np.tile(rows.labels, 9))
        for name, rows in (("fit", parts.fit), ("certify", parts.certify))
    }
    folder = bundles.write(tmp_path, contents(opened, reference=replace(parts, **more)))
    out = tmp_path / "daily.yaml"
    done = candor(
        "suggest", folder, "--positive", "7", "--reviews-per-day", "600", "--rows-per-day", "2000", "--out", out
    )
    assert done.exit_code == 0, done.stderr
    policy = parse_policy(yaml.safe_load(out.read_text()))
    assert policy.rows_per_day == 2000
    assert policy.most_per_day is not None
    assert policy.most_per_day >= 600, "blocked rows count too"
    assert f"review: a promise of {policy.most_per_day} of 2,000 rows a day" in done.stdout
    assert candor("lint", out, "--bundle", folder).exit_code == 0
    solved = candor("solve", out, "--bundle", folder)
    assert solved.exit_code == 0, solved.stdout
    assert "certified      suggested: review" in solved.stdout


def test_certify_labels_are_not_read(tmp_path: Path) -> None:
    opened = bundles.verify(DIGITS)
    rows = opened.reference.certify
    wrong = LabelledLogits(rows.logits, (rows.labels + 1) % 10)
    folder = bundles.write(tmp_path, contents(opened, reference=replace(opened.reference, certify=wrong)))
    before, after = (candor("suggest", path, "--positive", "7", "--json").stdout for path in (DIGITS, folder))
    assert before == after


def test_too_little_data_promises_nothing(tmp_path: Path) -> None:
    opened = bundles.verify(DIGITS)
    few = np.arange(40)
    rows = LabelledLogits(opened.reference.fit.logits[few], opened.reference.fit.labels[few])
    reference = bundles.Reference(rows, opened.reference.certify, opened.reference.gate)
    folder = bundles.write(tmp_path, contents(opened, reference=reference))
    out = tmp_path / "few.yaml"
    done = candor("suggest", folder, "--positive", "7", "--out", out)
    assert done.exit_code == 0, done.stderr
    assert "No block: no precision from 0.5 to 0.99" in done.stdout
    assert "0.5 precision needs some" in done.stdout
    policy = parse_policy(yaml.safe_load(out.read_text()))
    assert [band.action for band in policy.bands] == ["review", "allow"]
    assert not list(policy.promises())
    assert candor("solve", out, "--bundle", folder).exit_code == 0


def test_rows_of_one_probability_are_explained(tmp_path: Path) -> None:
    opened = bundles.verify(DIGITS)
    same = LabelledLogits(np.zeros_like(opened.reference.fit.logits), opened.reference.fit.labels)
    reference = bundles.Reference(same, opened.reference.certify, opened.reference.gate)
    folder = bundles.write(tmp_path, contents(opened, reference=reference))
    done = candor("suggest", folder, "--positive", "7")
    assert done.exit_code == 0, done.stderr
    assert "# review: all other rows. 100.0% of the fit rows have one probability, 0." in done.stdout
    assert "takes more rows than the review share." in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--positive", "fraud"], "The model has no label 'fraud'"),
        (["--positive", "top"], "A suggestion is about one class"),
        (["--positive", "7", "--review-share", "0"], "--review-share"),
        (["--positive", "7", "--delta", "1"], "/certify/delta"),
        (["--positive", "7", "--reviews-per-day", "5"], "--rows-per-day"),
        (["--positive", "7", "--rows-per-day", "5"], "--reviews-per-day"),
        (["--positive", "7", "--reviews-per-day", "9", "--rows-per-day", "9"], "1 to 8"),
        (["--positive", "7", "--reviews-per-day", "1", "--rows-per-day", "9", "--review-share", "0.1"], "together"),
        (["--positive", "7", "--out", "/dev/null/policy.yaml"], "cannot be written"),
    ],
)
def test_what_is_refused(arguments: list[str], said: str) -> None:
    done = candor("suggest", DIGITS, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
