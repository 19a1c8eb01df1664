"""What an option is, the options of a call, and how settings are read from them.

An option is declared once, on the field of the settings that use it:

    @dataclass(frozen=True, slots=True)
    class TtlSettings:
        days: Annotated[int, Option("hoodie.partition.ttl.strategy.days.retain", int, "-1", "days until a partition expires")]

A field that several options decide names them all, and the `of` of its class computes it.  An option that several settings use
is a constant beside the first of them.  `read_settings` reads the fields that one option decides; `settings_options` tells which
options settings read, which is how a verb knows the options that act on it.  `pyhudi.options.supported` gathers them all.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache, partial
from operator import methodcaller
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pyhudi.errors import InvalidRequest
from pyhudi.format.properties import redact_secret

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    kind: str, int, float, bool, or a tuple of the legal words.  default: as text, None for unset.  description: half a sentence
    for the page of all options.  at_least: the smallest number that is legal.

    chooses: the option chooses which rows a read gives, or what a write does, so a call that does not go by it would do something
    else than was asked.  Empty for options that say how work is done, or when.
    verbs: the verbs on which it acts, of those whose settings read it; () for all of them.

    stored_as: the property of the table that it becomes at creation, and is compared with afterwards.  fixed: no caller chooses
    the property; what is given has to be what a new table has.
    """

    key: str
    kind: type | tuple[str, ...]
    default: str | None
    description: str
    aliases: tuple[str, ...] = ()
    at_least: int | None = None
    chooses: Literal["", "read", "write"] = ""
    verbs: tuple[str, ...] = ()
    stored_as: str | None = None
    fixed: bool = False

    def __post_init__(self) -> None:
        known = REGISTRY.setdefault(self.key, self)
        if known != self:
            raise ValueError(f"option {self.key} is declared twice, and differently")

    def __str__(self) -> str:
        return self.key

    @property
    def has_single_value(self) -> bool:
        """Whether one value alone is legal, so that the option says nothing new."""
        return isinstance(self.kind, tuple) and len(self.kind) == 1

    @property
    def all_names(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return (self.key, *self.aliases)


REGISTRY: dict[str, Option] = {}
"""Every option that was declared, by name; complete once `pyhudi.options.supported` is imported."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options after checking: canonical keys, each value legal.  Build with `pyhudi.options.supported.parse_options`."""

    values: tuple[tuple[str, str], ...]
    extra: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        pairs = (f"{key}={redact_secret(key, value)}" for key, value in (*self.values, *self.extra))
        return f"Options({', '.join(pairs)})"

    def explicit(self, option: Option | str) -> str | None:
        """The caller's text for an option, None when it was not given."""
        return _by_name(self.values).get(str(option))

    def text(self, option: Option | str) -> str | None:
        """The value or the default; None when there is neither, or it is empty."""
        found = _by_name(self.values).get(str(option), REGISTRY[str(option)].default)
        return found if found else None

    def value_or_default(self, option: Option | str) -> str:
        """A value that always has one: given or default."""
        found = _by_name(self.values).get(str(option), REGISTRY[str(option)].default)
        if found is None:
            raise InvalidRequest(f"option {option} is required")
        return found

    def integer(self, option: Option | str) -> int:
        """A whole number."""
        return int(self.value_or_default(option))

    def number(self, option: Option | str) -> float:
        """A number."""
        return float(self.value_or_default(option))

    def flag(self, option: Option | str) -> bool:
        """A boolean."""
        return self.value_or_default(option).lower() == "true"

    def names(self, option: Option | str) -> tuple[str, ...]:
        """A comma list, blanks around its parts dropped."""
        return tuple(part.strip() for part in (self.text(option) or "").split(",") if part.strip())

    def with_prefix(self, *prefixes: str) -> dict[str, str]:
        """Keys that pass through, by prefix."""
        return {key: value for key, value in self.extra if key.startswith(prefixes)}

    def merged(self, values: Mapping[str, str], extra: Mapping[str, str] | None = None) -> Options:
        """These options with canonical values, and with keys that are not options, laid over them."""
        return Options(tuple({**dict(self.values), **values}.items()), tuple({**dict(self.extra), **(extra or {})}.items()))


@lru_cache(maxsize=256)
def _by_name(values: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(values)


def read_settings(settings: type[S], options: Options, **computed: object) -> S:
    """Settings from checked options.

    A field with one option gets its value in the type of the field, one that holds settings those, and another one its default;
    computed: fields that are more than that.
    """
    # Both are frozen, so the settings of one set of options are read once however many writes they are asked for.
    return _read_beside(settings, options, computed) if computed else cast(S, _read(cast(type, settings), options))


@lru_cache(maxsize=256)
def _read(settings: type, options: Options) -> object:
    return _read_beside(settings, options, {})


def _read_beside(settings: type[S], options: Options, computed: Mapping[str, object]) -> S:
    values = dict(computed)
    for name, read in _readers(cast(type, settings)):
        if name not in values:
            values[name] = read(options)
    return settings(**values)


@lru_cache(maxsize=256)
def _settings_within(kind: type, options: Options) -> object:
    return getattr(kind, "of")(options)  # noqa: B009 - the type of a dataclass does not say what it has


@cache
def _readers(settings: type) -> tuple[tuple[str, Callable[[Options], object]], ...]:
    """What reads each field from options, of the fields that one option decides and of those that hold settings."""
    found: list[tuple[str, Callable[[Options], object]]] = []
    for name, kind, declared in _declared(settings):
        deciding = [option for option in declared if not option.has_single_value] or declared
        if len(deciding) == 1:
            found.append((name, _reader(deciding[0], kind)))
        elif is_dataclass(kind) and hasattr(kind, "of"):
            found.append((name, partial(_settings_within, cast(type, kind))))
    return tuple(found)


def settings_options(settings: type) -> frozenset[Option]:
    """The options that settings are read from, those of settings within them too."""
    found: set[Option] = set()
    for _, kind, declared in _declared(settings):
        found.update(declared)
        for part in _parts(kind):
            if is_dataclass(part) and isinstance(part, type):
                found |= settings_options(part)
    return frozenset(found)


@cache
def _declared(settings: type) -> tuple[tuple[str, Any, tuple[Option, ...]], ...]:
    """Each field: its name, its type, and the options that decide it."""
    hints = get_type_hints(settings, include_extras=True)
    found = []
    for field in fields(cast(Any, settings)):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            kind, *extras = get_args(hint)
            found.append((field.name, kind, tuple(extra for extra in extras if isinstance(extra, Option))))
        else:
            found.append((field.name, hint, ()))
    return tuple(found)


def _parts(kind: Any) -> Iterator[Any]:
    """The type, and those of which it is a union."""
    if get_origin(kind) in (Union, types.UnionType):
        yield from get_args(kind)
    else:
        yield kind


def _reader(option: Option, kind: Any) -> Callable[[Options], object]:
    """Reads the option in the type of a field: text, a number, a flag, names; None where the type allows it and it is unset."""
    wanted = [part for part in _parts(kind) if part is not type(None)]
    may_be_unset = len(wanted) < len(list(_parts(kind)))
    (plain,) = wanted
    read: Callable[[Options], object]
    if get_origin(plain) is tuple:
        read = methodcaller("names", option)
    elif plain is bool:
        read = methodcaller("flag", option)
    elif plain is str:
        read = methodcaller("value_or_default", option)
    else:
        read = lambda options: plain(options.value_or_default(option))  # noqa: E731 - a name for each of four ways to read
    return (lambda options: None if options.text(option) is None else read(options)) if may_be_unset else read
