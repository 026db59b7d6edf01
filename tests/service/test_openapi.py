"""The OpenAPI document is whole, consistent and true, and /docs shows it without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

METHODS = {"get", "put", "post", "delete", "patch", "head", "options"}


@pytest.fixture(scope="module")
def document(shared: Any) -> dict[str, Any]:
    response = shared.http.get("/openapi.json")
    assert response.status_code == 200
    described: dict[str, Any] = response.json()
    return described


def walk(node: Any, path: str = "#") -> Iterator[tuple[str, Any]]:
    yield path, node
    for key, child in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from walk(child, f"{path}/{key}")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def resolved(node: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference within the document points to, or the node itself where it is none."""
    if "$ref" not in node:
        return node
    target = document
    for part in node["$ref"].removeprefix("#/").split("/"):
        target = target[part]
    return target


def test_no_parameter_is_named_twice(document: dict[str, Any]) -> None:
    """Also where a process makes several applications, as that of the tests does."""
    for method, path, operation in operations(document):
        named = [str(parameter) for parameter in operation.get("parameters", ())]
        assert len(named) == len(set(named)), f"{method} {path}"


def test_every_route_is_described_and_every_description_is_a_route(shared: Any, document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for method, path, _ in operations(document)}
    assert {path for _, path in described} == {
        "/livez",
        "/v1/jobs",
        "/v1/models/{model}/prior-shift",
        "/v1/jobs/{job}/propose",
        "/v1/models/{model}/audit",
        "/v1/models/{model}/revisions/{revision}/reject",
        "/readyz",
        "/metrics",
        "/v1/models",
        "/v1/jobs/{job}",
        *("/predict", "/feedback", "/recalibrate"),
        *("/v1/models/{model}", "/v1/models/{model}:predict"),
        *("/v1/multilabel", "/v1/multilabel/{model}/predict", "/v1/multilabel/{model}/feedback"),
        *(
            f"/v1/models/{{model}}/{rest}"
            for rest in (
                *("predict", "feedback", "recalibrate", "rollback"),
                *("revisions", "revisions/{revision}", "revisions/{revision}/activate", "policies/{policy}"),
                "revisions/{revision}/traffic",
                "policies/{policy}/simulate",
                "policies/{policy}/backtest",
                "monitoring",
                "erase",
                *("labelled-sets", "labelled-sets/{labelled_set}"),
                *("challengers", "challengers/{challenger}"),
                *("load", "unload"),
                *("cases", "cases/claim", "cases/{case}"),
                *(f"cases/{{case}}/{verb}" for verb in ("claim", "label", "skip", "release", "assign")),
            )
        ),
        *("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/stats", "/v2/repository/index"),
        *(f"/v2/repository/models/{{model}}/{verb}" for verb in ("load", "unload")),
        *(
            f"/v2/models/{{model}}{version}{rest}"
            for version in ("", "/versions/{version}")
            for rest in ("", "/infer", "/ready", "/config", "/stats")
        ),
    }
    for method, path in described:
        response = shared.http.request(method, re.sub(r"{\w+}", "x", path))
        assert response.status_code != 405
        if response.status_code == 404:
            document = response.json()
            assert "Unknown model" in document["error"] if path.startswith("/v2") else document["type"] != "about:blank"


def test_another_method_is_told_all_that_a_path_has(shared: Any, document: dict[str, Any]) -> None:
    paths = document["paths"]
    for path in paths:
        address = re.sub(r"{\w+}", "x", path)
        # "cases/claim" has the form of "cases/{case}".
        alike = [item for other, item in paths.items() if re.fullmatch(re.sub(r"{\w+}", "[^/:]+", other), address)]
        response = shared.http.request("PATCH", address)
        assert response.status_code == 405, path
        allowed = set(response.headers["allow"].split(", "))
        assert allowed - {"HEAD"} == {method.upper() for item in alike for method in item}, path  # no word of HEAD


def test_the_document_is_well_formed(document: dict[str, Any]) -> None:
    assert re.fullmatch(r"3\.1\.\d", document["openapi"])
    assert document["info"]["title"] == "Candor"
    assert document["info"]["version"]
    for path, node in walk(document):
        if isinstance(node, dict) and isinstance(reference := node.get("$ref"), str):
            target: Any = document
            for part in reference.removeprefix("#/").split("/"):
                assert part in target, f"{path}: {reference} leads nowhere"
                target = target[part]
        if isinstance(node, dict) and isinstance(node.get("required"), list) and "properties" in node:
            assert set(node["required"]) <= set(node["properties"]), path
    schemes = document["components"]["securitySchemes"]
    for requirement in document["security"]:
        assert set(requirement) <= set(schemes)


def test_operations_are_complete(document: dict[str, Any]) -> None:
    seen = set()
    for method, path, operation in operations(document):
        assert method in METHODS
        assert operation["operationId"] not in seen
        assert re.fullmatch(r"(v2_)?[a-z]+(_[a-z]+){0,3}", operation["operationId"]), "a name for functions and files"
        seen.add(operation["operationId"])
        assert operation["tags"]
        assert operation["summary"]
        assert operation["description"], path
        parameters = [resolved(parameter, document) for parameter in operation.get("parameters", ())]
        named = {p["name"] for p in parameters if p["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path)), path
        assert ("Content-Encoding" in {p["name"] for p in parameters}) == ("requestBody" in operation), path
        for parameter in parameters:
            assert parameter["schema"]
            assert parameter["in"] in ("path", "query", "header")
            if parameter["in"] == "path":
                assert parameter["required"] is True
        assert any(status.startswith("2") for status in operation["responses"]), path
        for answer in operation["responses"].values():
            assert "description" in answer or "$ref" in answer
        assert ("security" in operation) == (path in ("/livez", "/readyz", "/v2/health/live", "/v2/health/ready"))


def test_metrics_are_text(document: dict[str, Any]) -> None:
    assert set(document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]) == {"text/plain"}


def test_what_an_endpoint_says_is_in_its_schema(shared: Any, digits: Any, document: dict[str, Any]) -> None:
    answer = shared.http.post("/predict?policy=auto-read", json={"inputs": digits.images[:1].tolist()}).json()
    operation = document["paths"]["/predict"]["post"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    schemas = document["components"]["schemas"]
    for described in (answer, resolved(schema, document)["example"]):
        fits(described, schema, document)
        assert set(described) == set(schemas["Predictions"]["properties"])
        (row,) = described["predictions"]
        assert set(row) == set(schemas["Prediction"]["properties"])
        assert set(described["policy"]["certified"]["accept"]) == set(schemas["Certificate"]["properties"])
    body = operation["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():
        fits(example["value"], body["schema"], document)


def test_examples_of_schemas_fit_them(document: dict[str, Any]) -> None:
    examples = {
        name: schema["example"] for name, schema in document["components"]["schemas"].items() if "example" in schema
    }
    assert {"FeedbackRequest", "Predictions", "Problem", "RecalibrationRequest"} <= set(examples)
    for name, example in examples.items():
        fits(example, {"$ref": f"#/components/schemas/{name}"}, document)


def test_schemas_have_one_name_each_and_all_are_used(document: dict[str, Any]) -> None:
    names = set(document["components"]["schemas"])
    assert all(re.fullmatch(r"[A-Z][A-Za-z]+", name) for name in names), "no second name for what is read and answered"
    used = {node["$ref"].rpartition("/")[2] for _, node in walk(document) if isinstance(node, dict) and "$ref" in node}
    assert names <= used


def test_what_can_be_asked_without_more_answers_in_a_documented_content_type(
    shared: Any, document: dict[str, Any]
) -> None:
    asked = {path for method, path, _ in operations(document) if method == "get" and "{" not in path}
    assert {"/metrics", "/v1/models", "/v2"} <= asked
    for path in asked:
        content_type, _, _ = shared.http.get(path).headers["content-type"].partition(";")
        assert content_type in document["paths"][path]["get"]["responses"]["200"]["content"], path


def test_what_v2_says_is_in_its_schema(shared: Any, digits: Any, document: dict[str, Any]) -> None:
    image = digits.images[:1]
    tensor = {"name": "input", "shape": list(image.shape), "datatype": "UINT8", "data": image.ravel().tolist()}
    inference = {"id": "1", "parameters": {"policy": "auto-read"}, "inputs": [tensor]}
    seen = set()
    for method, path, operation in operations(document):
        if not path.startswith("/v2"):
            continue
        seen.add(path)
        asked = operation.get("requestBody", {"content": {"application/json": {"schema": {}, "example": None}}})
        question = asked["content"]["application/json"]
        fits(question["example"], question["schema"], document)
        if path.endswith("/unload"):
            continue  # the service is everybody's; the same empty object as /load answers
        content = operation["responses"]["200"]["content"]["application/json"]
        fits(content["example"], content["schema"], document)
        body = inference if path.endswith("/infer") else question["example"] if method == "post" else None
        if path.endswith("/infer"):
            fits(body, question["schema"], document)
        response = shared.http.request(method, path.format(model="digits", version="1"), json=body)
        assert response.status_code == 200, response.text
        answer = response.json()
        fits(answer, content["schema"], document)
        for given in answer if isinstance(answer, list) else [answer]:
            known = resolved(content["schema"].get("items", content["schema"]), document)["properties"]
            assert set(given) <= set(known), path
    assert len(seen) == 17
    refused = shared.http.get("/v2/models/nothing")
    error = document["components"]["responses"]["V2Error"]["content"]["application/json"]["schema"]
    fits(refused.json(), error, document)


def fits(value: Any, schema: dict[str, Any], document: dict[str, Any]) -> None:
    """Check a value against a schema of the document."""
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def test_docs_answer_without_a_network(shared: Any) -> None:
    page = shared.http.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assets = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert assets
    for asset in assets:
        assert not asset.startswith(("http:", "https:", "//"))
        assert shared.http.get(asset).status_code == 200
