"""`candor policy` on files: what it prints, and its exit codes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from service.cli import app
from service.decisions.policy import parse_policy

FRAUD = {
    "id": "card-fraud",
    "positive": "fraud",
    "bands": [
        {"action": "block", "when": {"min_precision": 0.9}},
        {"action": "review", "when": {"max_flag_rate": 0.3}},
        {"action": "allow"},
    ],
    "explore": {"share": 0.01, "actions": ["allow", "block"]},
}


def candor(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["policy", *map(str, arguments)])


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.csv", 6000)


def written(path: Path, size: int, **columns: Any) -> Path:
    rng = np.random.default_rng(size)
    p = rng.random(size)
    positive = (rng.random(size) < p).astype(int)
    table = {"probability": p, "positive": positive, "id": [f"tx-{i}" for i in range(size)], **columns}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    def write(name: str = "fraud.yaml", **changes: Any) -> Path:
        path = tmp_path / name
        path.write_text(yaml.safe_dump({**FRAUD, **changes}))
        return path

    return write


def test_lint_without_data_says_how_many_labels_it_needs(policy: Any) -> None:
    done = candor("lint", policy())
    assert done.exit_code == 0
    assert "/bands/0/when/min_precision: At least 42 labelled rows" in done.stdout
    assert "if none of them is an error" in done.stdout


def test_lint_with_data_finds_what_they_could_never_certify(policy: Any, tmp_path: Path) -> None:
    few = written(tmp_path / "few.csv", 90)
    done = candor("lint", policy(), "--rows", few, "--json")
    assert done.exit_code == 1
    findings = json.loads(done.stdout)
    assert findings[0]["level"] == "problem"
    assert findings[0]["where"] == "/bands/0/when/min_precision"
    assert "can never certify" in findings[0]["message"]


def test_a_value_that_yaml_cannot_make_is_said_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "dated.yaml"
    file.write_text("id: 2024-13-01\nbands: [{action: review}]\n")
    done = candor("lint", file)
    assert (done.exit_code, "dated.yaml" in done.stderr) == (2, True), done.stderr


def test_lint_refuses_a_policy_that_cannot_be_used(policy: Any) -> None:
    done = candor("lint", policy(certify={"delta": 1.0}))
    assert done.exit_code == 2
    assert "/certify/delta" in done.stderr
    assert "remedy" in done.stderr


def test_solve_certifies_and_its_answer_can_be_read_back(policy: Any, rows: Path) -> None:
    shown = candor("solve", policy(), "--rows", rows)
    assert shown.exit_code == 0
    assert "block from 0." in shown.stdout
    assert "certified" in shown.stdout
    answer = json.loads(candor("solve", policy(), "--rows", rows, "--json").stdout)
    assert parse_policy(answer["policy"]).id == "card-fraud"
    assert [band["certificate"]["valid"] for band in answer["bands"][:2]] == [True, True]
    second = json.loads(candor("solve", policy(), "--rows", rows, "--look", "2", "--json").stdout)
    assert second["bands"][0]["certificate"]["delta"] == pytest.approx(answer["bands"][0]["certificate"]["delta"] / 3)


def test_solve_exits_with_one_when_a_promise_cannot_be_certified(policy: Any, tmp_path: Path) -> None:
    few = written(tmp_path / "few.csv", 90)
    done = candor("solve", policy(), "--rows", few)
    assert done.exit_code == 1
    assert "not certified" in done.stdout
    assert "more labelled rows" in " ".join(done.stdout.split())


def test_a_band_that_gets_no_row_is_said(policy: Any, rows: Path) -> None:
    bands = [
        {"action": "block", "when": {"min_recall": 0.9}},
        {"action": "review", "when": {"max_flag_rate": 0.02}},
        {"action": "allow"},
    ]
    done = candor("solve", policy(bands=bands, explore={"share": 0.001, "actions": ["allow"]}), "--rows", rows)
    assert "no row, an earlier band takes them all" in done.stdout


def test_simulate_says_what_changes(policy: Any, rows: Path) -> None:
    new = policy("new.yaml", bands=[{"action": "block", "when": {"min_precision": 0.8}}, *FRAUD["bands"][1:]])  # type: ignore[misc]
    done = candor("simulate", new, "--against", policy(), "--rows", rows, "--flips", 3, "--json")
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    decisions = answer["decisions"]
    assert 0 < decisions["flipped"] < answer["rows"] < 6000
    assert len(decisions["flips"]) == 3
    assert all(flip["id"].startswith("tx-") for flip in decisions["flips"])
    assert sum(change["rows"] for change in decisions["changes"]) == decisions["flipped"]
    assert sum(counts["after"] for counts in answer["actions"].values()) == answer["rows"]
    low, high = answer["expected"][0]["precision"]["interval"]
    assert low < answer["expected"][0]["precision"]["value"] < high
    shown = candor("simulate", new, "--against", policy(), "--rows", rows)
    assert f"{decisions['flipped']} of {answer['rows']} decisions change" in shown.stdout


def test_a_bundle_stands_for_rows(digits: Any, policy: Any) -> None:
    folder = digits.root / "digits" / "1"
    bands = [{"action": "flag", "when": {"min_probability": 0.5}}, {"action": "allow"}]
    sevens = policy(positive="7", bands=bands, explore={"share": 0.1, "actions": ["allow"]})
    assert candor("solve", sevens, "--bundle", folder).exit_code == 0
    answer = json.loads(candor("simulate", sevens, "--bundle", folder, "--json").stdout)
    assert answer["rows"] == len(digits.bundle.reference.gate.labels)
    assert answer["expected"][0]["recall"]["value"] > 0.5
    wanted = {"coverage": 0.5, "per_class": False}
    with_sets = policy(positive="7", bands=bands, explore={"share": 0.1, "actions": ["allow"]}, set=wanted)
    shown = candor("solve", with_sets, "--bundle", folder)
    assert (shown.exit_code, "prediction sets, coverage of at least 50%" in shown.stdout) == (0, True), shown.output
    refused = candor("solve", policy(set={"coverage": 0.9999}, positive="7"), "--bundle", folder)
    assert (refused.exit_code, "every set has every label" in refused.stdout) == (1, True)
    unknown = candor("solve", policy(), "--bundle", folder)
    assert unknown.exit_code == 2
    assert "/positive" in unknown.stderr


def test_a_file_of_one_probability_makes_no_sets(policy: Any, rows: Path) -> None:
    done = candor("solve", policy(set={"coverage": 0.9}), "--rows", rows)
    assert (done.exit_code, "/set" in done.stderr, "--bundle" in done.stderr) == (2, True, True)


def test_npz_and_csv_are_the_same_rows(policy: Any, rows: Path, tmp_path: Path) -> None:
    with rows.open() as file:
        table = list(csv.DictReader(file))
    arrays = tmp_path / "rows.npz"
    np.savez(
        arrays,
        probability=np.array([float(row["probability"]) for row in table]),
        positive=np.array([int(row["positive"]) for row in table]),
    )
    one, other = (json.loads(candor("solve", policy(), "--rows", path, "--json").stdout) for path in (rows, arrays))
    assert one == other


def test_columns_reach_the_certificates(policy: Any, tmp_path: Path) -> None:
    size = 6000
    rng = np.random.default_rng(5)
    grouped = written(tmp_path / "groups.csv", size, group=[f"card-{i // 2}" for i in range(size)])
    answer = json.loads(candor("solve", policy(), "--rows", grouped, "--json").stdout)
    assert answer["bands"][1]["certificate"]["groups"] < 0.4 * size / 2
    bands = [{"action": "block", "when": {"min_precision": 0.8}}, {"action": "allow"}]
    money = written(tmp_path / "amounts.csv", size, amount=["" if i % 30 == 0 else i % 7 for i in range(size)])
    answer = json.loads(
        candor("solve", policy(bands=bands, certify={"per": "amount"}), "--rows", money, "--json").stdout
    )
    assert answer["bands"][0]["certificate"]["per"] == "amount"
    assert answer["bands"][0]["certificate"]["valid"]
    few = written(tmp_path / "few.csv", 200)  # no certify row is above the only candidate
    without = candor("solve", policy(bands=bands, certify={"per": "amount"}), "--rows", few)
    assert "100.0% of the certify rows have no amount" in " ".join(without.stdout.split())
    by_country = policy(bands=bands, segments={"values": ["DE", "FR"]})
    countries = written(tmp_path / "countries.csv", size, segment=rng.choice(["DE", "FR"], size))
    answer = json.loads(candor("solve", by_country, "--rows", countries, "--json").stdout)
    assert set(answer["segments"]) == {"DE", "FR"}
    assert answer["segments"]["DE"]["certified"]
    assert candor("solve", by_country, "--rows", countries).stdout.endswith("all other\nreview for every row\n")


@pytest.mark.parametrize(
    ("header", "lines", "where"),
    [
        ("probability", ["0.5"], "positive"),
        ("positive", ["1"], "probability"),
        ("probability,positive,colour", ["0.5,1,red"], "colour"),
        ("probability,positive", ["1.5,1"], "probability, row 1"),
        ("probability,positive", ["0.5,1", "0.5,2"], "positive, row 2"),
        ("probability,positive", ["0.5,1", "abc,1"], "probability, row 2"),
        ("probability,positive", ["0.5"], "bad.csv, line 2"),
        ("probability,positive", ["", "0.5,1", "0.5"], "line 4"),
        ("probability,positive", ['"0.5"5,1'], "Line 2 is not valid CSV"),
        ("probability;positive", ["0,5;1"], "unknown column 'probability;positive'"),
        ("probability,positive,positive", ["0.5,1,0"], "Duplicate column in the header"),
        ("", [], "the column 'probability' is missing"),
        ("probability,positive,group", ["0.5,1,a"] * 50, "50 rows of 1 groups"),
        ("probability,positive,propensity", ["0.5,1,0", "0.5,1,1"], "propensity"),
        ("probability,positive,propensity", ["0.5,1,1.5", "0.5,1,1"], "propensity"),
        ("probability,positive,propensity,sought", ["0.5,1,1,1", "0.5,1,1,0"], "sought, row 2"),
        ("probability,positive,amount", ["0.5,1,", "0.5,1,-2"], "amount, row 2"),
        ("probability,positive,amount", ["0.5,1,inf"], "amount, row 1"),
        ("probability,positive", ["0.5,1"], "certify"),
    ],
)
def test_bad_rows_are_named(policy: Any, tmp_path: Path, header: str, lines: list[str], where: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("\n".join([header, *lines]))
    done = candor("solve", policy(), "--rows", path)
    assert done.exit_code == 2
    assert where in done.stderr or (where == "certify" and "has too few rows" in done.stderr), done.stderr


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive", "objects"])
def test_an_npz_file_that_is_none_is_no_advice_to_unpickle_it(policy: Any, tmp_path: Path, content: Any) -> None:
    path = tmp_path / "bad.npz"
    if content == "objects":
        np.savez(path, probability=np.array([None, 0.5], dtype=object), positive=[1, 0])
    else:
        path.write_bytes(content)
    done = candor("solve", policy(), "--rows", path)
    assert done.exit_code == 2
    assert "is not a valid .npz file" in done.stderr
    assert "pickle" not in done.stderr


def test_rows_come_from_one_place(policy: Any, rows: Path, tmp_path: Path) -> None:
    assert "neither" in candor("solve", policy()).stderr
    assert "both" in candor("lint", policy(), "--rows", rows, "--bundle", tmp_path).stderr


def test_schema_is_json() -> None:
    assert json.loads(candor("schema").stdout)["title"] == "Candor policy"
