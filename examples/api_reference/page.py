"""The OpenAPI document and the worked examples as one page of Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from jsonschema import Draft202012Validator

from examples.api_reference.conversation import Exchange
from examples.api_reference.steady import Steady

Node = dict[str, Any]

_LINK = re.compile(r"\]\(#([a-z]+)-object\)")
_WIDTH = 110
_MOST_ITEMS = 5
_MOST_LINES = 48
_GROUPS = {
    "predict": "Predict",
    "feedback": "Feedback",
    "recalibration": "Recalibration",
    "revisions": "Revisions",
    "policies": "Policies",
    "labels": "Multi-label models",
    "cases": "Cases",
    "monitoring": "Monitoring",
    "challengers": "Challengers",
    "models": "Models",
    "v2": "Open Inference Protocol",
    "operation": "Operation",
}
_HEAD = """# API reference

Every operation of the service. This page is generated together with the site, from the OpenAPI document and a
conversation with a running service. [The HTTP API](api.md) is the guide. A running service has its OpenAPI document at
`/openapi.json`, and pages to try it at `/docs`.

The examples serve `examples/bundles` with the policies of `examples/policies` and send dimmed digits of scikit-learn,
and the scores of a multi-label model of comments that others run.
Each command was run exactly as shown, and each answer is the service's own. Ids, times and durations are the same in
every run, numbers are rounded to four digits, and "…" marks an omission. If the service has keys, add
`-H "Authorization: Bearer $CANDOR_API_KEY"`. [Endpoints](api.md#endpoints) lists the scope of each operation.

Operations of `/v1` report errors as [problem documents](api.md#problems): 4XX if the request must change, 5XX if the
service failed. Operations of `/v2` answer `{"error": "…"}` with the same status.
"""


def write(document: Node, exchanges: Sequence[Exchange]) -> str:
    """Return the page.

    Args:
        document: The OpenAPI document.
        exchanges: At least one for each operation.

    Raises:
        ValueError: An operation has no example or an unknown group, or the document does not allow an answer.
    """
    steady = Steady(text for exchange in exchanges for text in (exchange.command, exchange.body))
    groups: dict[str, list[str]] = {tag: [] for tag in _GROUPS}
    seen: dict[str, str] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            examples = [one for one in exchanges if one.operation == (method.upper(), path)]
            if not any(one.status < 300 for one in examples):
                raise ValueError(f"{method.upper()} {path} has no example that succeeds")
            for example in examples:
                _hold_to(operation, document, example)
            told = _Operation(f"{method.upper()} {path}", operation, document, seen)
            whole = [told.lines(), *(_example(exchange, steady) for exchange in examples)]
            groups[operation["tags"][0]] += [line for part in whole for line in part]
    parts = [_HEAD]
    for tag, title in _GROUPS.items():
        parts += [f"## {title}\n", *groups[tag]]
    parts += ["## Objects\n", *_objects("\n".join(parts), document)]
    return "\n".join(parts).rstrip() + "\n"


def _objects(page: str, document: Node) -> Iterator[str]:
    """Yield the fields of every object that the page, or one of these objects, links to."""
    names = {name.lower(): name for name in document["components"]["schemas"]}
    told: dict[str, list[str]] = {}
    linked = set(_LINK.findall(page))
    while missing := linked - told.keys():
        for key in missing:
            schema = document["components"]["schemas"][names[key]]
            rows = [_row(f"`{name}`", kind, said) for name, kind, said in _fields(schema, document, needed=False)]
            table = ["| field | type | meaning |", "|---|---|---|", *rows, ""]
            told[key] = [f"### `{names[key]}` object", "", _prose(schema["description"]), "", *table]
            linked |= set(_LINK.findall("\n".join(rows)))
    for key in sorted(told):
        yield from told[key]


def _hold_to(operation: Node, document: Node, exchange: Exchange) -> None:
    """Raise ValueError unless the document allows an answer."""
    kind = exchange.headers["content-type"].partition(";")[0]
    answers = operation["responses"]
    answer = answers.get(str(exchange.status.value)) or answers.get(f"{exchange.status.value // 100}XX", {})
    name = f"{exchange.status.value} of {' '.join(exchange.operation)}"
    content = _resolved(answer, document).get("content", {})
    if kind not in content:
        raise ValueError(f"{name}: {kind} is not among {sorted(content)}")
    if kind.endswith("json"):
        schema = {**content[kind].get("schema", {}), "components": document["components"]}
        for error in Draft202012Validator(schema).iter_errors(json.loads(exchange.body)):
            raise ValueError(f"{name}: {error.json_path}: {error.message}")


class _Operation:
    """Renders one operation of the document.

    Args:
        name: Method and path.
        operation: The operation's part of the document.
        document: The whole document.
        seen: Operations by their bodies and answers; a repeated body or answer becomes a link.
    """

    def __init__(self, name: str, operation: Node, document: Node, seen: dict[str, str]) -> None:
        self._name, self._operation, self._document, self._seen = name, operation, document, seen

    def lines(self) -> list[str]:
        """Return everything before the examples."""
        lines = [f"### `{self._name}`", "", _prose(self._operation["description"]), "", *self._parameters()]
        body = self._operation.get("requestBody")
        if body is not None:
            title = "Body" if body.get("required") else "Body, which may be left out"
            lines += self._told(title, body["content"], needed=True)
        for status, answer in self._operation["responses"].items():
            if not status.isdigit():
                continue
            shown = _resolved(answer, self._document)
            lines += self._told(f"Answer {status}: {_sentence(shown['description'])}", shown.get("content", {}))
            for name, header in shown.get("headers", {}).items():
                lines += [f"Header `{name}`: {header.get('description', 'as the request had it, or made up.')}", ""]
        return lines

    def _parameters(self) -> list[str]:
        parameters = [_resolved(one, self._document) for one in self._operation.get("parameters", ())]
        if not parameters:
            return []
        rows = []
        for one in parameters:
            schema = _resolved(one["schema"], self._document)
            said = one.get("description") or f"Name of the {one['name'].replace('_', ' ')}."
            rows.append(_row(f"`{one['name']}`", one["in"], _type(schema, self._document), said + _default(schema)))
        return ["| parameter | in | type | meaning |", "|---|---|---|---|", *rows, ""]

    def _told(self, title: str, contents: Node, *, needed: bool = False) -> list[str]:
        """Return the content of a body or answer: a line per content type, a table of fields per schema."""
        key = json.dumps({kind: content.get("schema", {}).get("$ref", content) for kind, content in contents.items()})
        if contents and key in self._seen:
            other = self._seen[key]
            anchor = re.sub(r"[^a-z0-9 _-]", "", other.lower()).replace(" ", "-")
            return [f"**{title}** {'As above' if other == self._name else f'As of [`{other}`](#{anchor})'}.", ""]
        if contents:
            self._seen[key] = self._name
        lines = [f"**{title}**", ""]
        for kind, content in contents.items():
            schema = content.get("schema", {})
            fields = list(_fields(schema, self._document, needed=needed))
            said = _resolved(schema, self._document).get("description", "")
            told = said or ("the fields below" if fields else "a file as it is" if _is_binary(schema) else "")
            lines.append(f"- `{kind}`{': ' if told else ''}{_prose(told)}")
            if fields:
                rows = [f"    {_row(f'`{name}`', kind_of, said)}" for name, kind_of, said in fields]
                lines += ["", "    | field | type | meaning |", "    |---|---|---|", *rows, ""]
        return [*lines, ""] if lines[-1] else lines


def _sentence(description: str) -> str:
    told = {
        "Successful Response": "done.",
        "OK": "done, and nothing was made.",
        "Created": "something was made.",
        "Accepted": "accepted, and not done yet.",
    }
    return told.get(description, description[0].lower() + description[1:])


def _is_binary(schema: Node) -> bool:
    return schema.get("format") == "binary"


def _fields(schema: Node, document: Node, prefix: str = "", *, needed: bool) -> Iterator[tuple[str, str, str]]:
    """Yield path, type and meaning of every field below a schema; `needed` marks required fields."""
    if prefix and _object_name(schema, document):
        return  # it is told once, below "Objects"
    schema = _resolved(schema, document)
    for option in schema.get("anyOf", ()):
        yield from _fields(option, document, prefix, needed=needed)
    if "items" in schema:
        yield from _fields(schema["items"], document, f"{prefix}[]", needed=needed)
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict):
        yield from _fields(inner, document, f"{prefix}.*" if prefix else "*", needed=needed)
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        resolved = _resolved(child, document)
        path = f"{prefix}.{name}" if prefix else name
        said = child.get("description") or resolved.get("description", "")
        said += " Required." if needed and name in required else ""
        yield path, _type(child, document), (said + _default(child)).strip()
        yield from _fields(child, document, path, needed=needed)


def _resolved(node: Node, document: Node) -> Node:
    """Return a reference's target with the fields beside it; other nodes unchanged."""
    if "$ref" not in node:
        return node
    target: Any = document
    for part in node["$ref"].removeprefix("#/").split("/"):
        target = target[part]
    return {**_resolved(target, document), **{key: value for key, value in node.items() if key == "description"}}


def _object_name(schema: Node, document: Node) -> str | None:
    """Return the name of an object that is told once; None of anything else."""
    shared = "$ref" in schema and "properties" in _resolved(schema, document)
    return schema["$ref"].rpartition("/")[2] if shared else None


def _type(schema: Node, document: Node) -> str:
    """Return a schema's type in words: `one of`, bounds and formats with it."""
    if name := _object_name(schema, document):
        return f"[`{name}`](#{name.lower()}-object)"
    schema = _resolved(schema, document)
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(option, document) for option in schema["anyOf"]))
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    words = []
    for kind in kinds:
        if kind == "array":
            items = _type(schema.get("items", {}), document)
            words.append(f"list of {items}" if items != "any" else "list")
        elif kind == "object" and isinstance(inner := schema.get("additionalProperties"), dict):
            words.append(f"object of {_type(inner, document)}" if inner else "object")
        elif kind == "string" and schema.get("format") == "date-time":
            words.append("time with its zone")
        elif kind == "string" and schema.get("format") == "binary":
            words.append("file")
        else:
            words.append(kind)
    return " or ".join(words) + _bounds(schema) if words else "any"


def _bounds(schema: Node) -> str:
    signs = {"minimum": "≥", "maximum": "≤", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
    said = [f"{sign} {schema[name]:g}" for name, sign in signs.items() if name in schema]
    lengths = {"maxLength": "characters", "maxItems": "entries"}
    said += [f"≤ {schema[name]:,} {what}" for name, what in lengths.items() if name in schema]
    return f", {', '.join(said)}" if said else ""


def _default(schema: Node) -> str:
    default = schema.get("default")
    return "" if default in (None, [], {}) else f" Default: `{json.dumps(default).strip(chr(34))}`."


def _row(*cells: str) -> str:
    return "| " + " | ".join(_prose(cell).replace("|", "\\|") for cell in cells) + " |"


def _prose(text: str) -> str:
    """Return a docstring's text as one Markdown paragraph; escape `{` and `<` outside code."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return "\n\n".join(paragraphs)


def _example(exchange: Exchange, steady: Steady) -> list[str]:
    shown = exchange.command
    shown = re.sub(r"(?:\d{1,3}, ){40,}\d{1,3}", lambda found: f"{found[0][:24].rsplit(', ', 1)[0]}, …", shown)
    kind = exchange.headers["content-type"].partition(";")[0]
    told = [f"{exchange.status.value} {exchange.status.phrase}"]
    headers = exchange.headers
    told += [f"{name}: {headers[name.lower()]}" for name in ("ETag", "Location") if name.lower() in headers]
    return [
        f"*{exchange.said}*" if exchange.said else "*Example*",
        "",
        "```console",
        f"$ {steady.text(shown)}",
        "```",
        "",
        f"`{'`, `'.join(told)}`",
        "",
        "```json" if kind.endswith("json") else "```text",
        *_answer(exchange, kind, steady),
        "```",
        "",
    ]


def _answer(exchange: Exchange, kind: str, steady: Steady) -> list[str]:
    if not kind.endswith("json"):
        return [*(line for line in exchange.body.splitlines() if "candor_model_ready" in line), "…"]
    lines = printed(_shortened(steady.document(json.loads(exchange.body)))).splitlines()
    return lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], "  …"]


def _shortened(node: Any) -> Any:
    """Return a document with "…" at the end of shortened lists and objects."""
    if isinstance(node, dict):
        names = list(node)
        if len(names) > _MOST_ITEMS and all(len(name) < 3 for name in names):
            return {**{name: _shortened(node[name]) for name in names[:2]}, "…": "…"}
        return {name: _shortened(child) for name, child in node.items()}
    if isinstance(node, list):
        short = [_shortened(child) for child in node[: 2 if len(node) > _MOST_ITEMS else None]]
        return [*short, "…"] if len(node) > _MOST_ITEMS else short
    return node


def printed(node: Any, indent: int = 0) -> str:
    """Return JSON on one line if that is short enough, else one line per entry.

    >>> print(printed({"model": "digits", "rows": [1, 2]}))
    {"model": "digits", "rows": [1, 2]}
    """
    flat = json.dumps(node, ensure_ascii=False)
    if len(flat) + indent <= _WIDTH or not isinstance(node, dict | list) or not node:
        return flat
    space = " " * (indent + 2)
    if isinstance(node, list):
        inner = [f"{space}{printed(child, indent + 2)}" for child in node]
        return "[\n" + ",\n".join(inner) + f"\n{' ' * indent}]"
    inner = [
        f"{space}{json.dumps(key, ensure_ascii=False)}: {printed(child, indent + 2)}" for key, child in node.items()
    ]
    return "{\n" + ",\n".join(inner) + f"\n{' ' * indent}}}"
