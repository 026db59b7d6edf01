"""Command-line options from a dataclass: one for each field, with help from the field's documentation."""

from __future__ import annotations

import functools
import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import docstring_parser
import typer

from training.data import parse_settings

Config = TypeVar("Config")


def with_options(
    config: type[Config], panels: Mapping[str, Sequence[str]], *, some: bool = False, by_data: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field of a dataclass.

    They replace the command's first argument, `config`. Options of tuples and mappings (`name=value`) may be repeated.

    Args:
        config: The dataclass; its docstring, or those of its bases, describe each field.
        panels: Fields under each heading of the help.
        some: Whether fields without a heading keep their defaults.
        by_data: Fields that follow the data unless they are named; the field `by_data` lists those that are not.

    Raises:
        ValueError: A field lacks a required heading or a description.
    """
    hints = get_type_hints(config)
    help_texts = _described(config)
    panel_of = {name: panel for panel, names in panels.items() for name in names}
    given = {field.name: field for field in fields(config) if field.metadata.get("option", True)}  # type: ignore[arg-type]
    needed = panel_of if some else given
    missing = [name for name in needed if name not in panel_of.keys() & help_texts.keys()]
    if missing:
        raise ValueError(f"heading or description missing for {', '.join(missing)}")
    options = [
        _parameter(given[name], hints[name], help_texts[name], panel, follows=name in by_data)
        for panel in panels
        for name in panels[panel]
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        others = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @functools.wraps(command)
        def wrapped(**arguments: Any) -> None:
            settings = {option.name: arguments.pop(option.name) for option in options}
            open_ones = [name for name in by_data if settings[name] is None]
            named = {name: value for name, value in settings.items() if name not in open_ones}
            more = {"by_data": tuple(open_ones)} if by_data else {}
            command(lambda: config(**_converted(named, hints), **more), **arguments)

        parameters = sorted([*others, *options], key=lambda entry: entry.default is not inspect.Parameter.empty)
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {entry.name: entry.annotation for entry in parameters}
        return wrapped

    return decorate


def typed(config: object) -> list[str]:
    """Return the options of a command that give this configuration: those that differ from the defaults.

    Args:
        config: An instance of the dataclass of `with_options`.

    Example:
        >>> from training.recipe import Recipe
        >>> typed(Recipe(flip=True, epochs=3, schedule="step", milestones=(1, 2)))
        ['--epochs', '3', '--schedule', 'step', '--milestone', '1', '--milestone', '2', '--flip']
    """
    plain = type(config)()
    told: list[str] = []
    for field in fields(config):  # type: ignore[arg-type]
        value, name = getattr(config, field.name), _name(field)
        if value == getattr(plain, field.name):
            continue
        if isinstance(value, bool):
            told.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                told += [
                    f"--{name.removesuffix('s')}",
                    f"{key}={entry if isinstance(entry, str) else json.dumps(entry)}",
                ]
        elif isinstance(value, tuple):
            told += [part for entry in value for part in (f"--{name.removesuffix('s')}", str(entry))]
        else:
            told += [f"--{name}", str(value)]
    return told


def _parameter(field: Field[Any], hint: Any, text: str, panel: str, *, follows: bool) -> inspect.Parameter:
    names: list[str] = []
    annotation, default = hint, None if field.default is MISSING else field.default
    if _is_mapping(hint):
        names = ["--" + _name(field).removesuffix("s")]
        annotation, default, text = list[str], [], f"{text} As name=value; repeatable."
    elif get_origin(hint) is tuple:
        names = ["--" + _name(field).removesuffix("s")]
        annotation, default, text = list[get_args(hint)[0]], [], f"{text} Repeatable."  # type: ignore[misc]
    elif "name" in field.metadata:
        names = ["--" + _name(field)]
    if follows:
        text = f"{text} Default: by the data for photographs, otherwise {_shown(default)}."
        annotation, default = annotation | None, None
    option = typer.Option(*names, help=text, rich_help_panel=panel, show_default=default not in (None, []))
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
    )


def _name(field: Field[Any]) -> str:
    """Return the name of a field's option, without dashes before it."""
    return str(field.metadata.get("name", field.name)).replace("_", "-")


def _shown(default: Any) -> str:
    return ("yes" if default else "no") if isinstance(default, bool) else str(default)


def _converted(settings: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(settings)
    for name, value in settings.items():
        if _is_mapping(hints[name]):
            result[name] = parse_settings(value)
        elif get_origin(hints[name]) is tuple:
            result[name] = tuple(value)
    return result


def _is_mapping(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return False
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _described(config: type) -> dict[str, str]:
    """Return the description of each attribute from the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(config.__mro__[:-1]):
        sections = docstring_parser.parse(base.__doc__ or "", docstring_parser.DocstringStyle.GOOGLE)
        found |= {
            each.arg_name: " ".join((each.description or "").split())
            for each in sections.params
            if each.args[0] == "attribute"
        }
    return found
