"""Declaration of options, the options of a call, and reading of settings from them.

An option is declared once, in the module of its subject (`service_options`, `write_options` and others), and the fields of
settings refer to it:

    @dataclass(frozen=True, slots=True)
    class TtlSettings:
        days: Annotated[int, service_options.PARTITION_TTL_STRATEGY_DAYS_RETAIN]

A field that depends on several options lists them all, and the `of` method of its class computes it. `read_settings`
reads the fields with one option. `settings_options` returns the options that settings read, which determines the
options of an operation. `pyhudi.options.supported` collects them all.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache, partial
from operator import methodcaller
from typing import Annotated, Any, Literal, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pyhudi.errors import InvalidRequest
from pyhudi.format.properties import redact_secret, split_list

S = TypeVar("S")

OLDEST_VERSION = 6
"""The oldest table version that is read."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        key: Canonical name.
        kind: str, int, float, bool, or a tuple of the allowed words.
        default: As text, None for unset.
        description: Half a sentence for the options page.
        aliases: Other names.
        at_least: The smallest allowed number.
        chooses: The option decides which rows a read returns, or what a write does. A call that ignored it would return
            something else than requested. Empty for options that control how or when work is done.
        operations: The operations that use it, among those whose settings read it; () for all of them.
        stored_as: The table property that stores it at creation, "" if none does; later values are compared with it.
        fixed: Callers cannot choose the property; a value must equal that of a new table.
        since: The first table version that has the property.
        origin: Where a value may come from. `table`: a fact of the format, or a setting that only shapes the table's own
            files, so a table may store it for all its users. `caller`: it names code, SQL, a host, a path, a credential, a
            lock, or memory and threads of the process; a stored value is used only if the caller trusts the table.
    """

    key: str
    kind: type | tuple[str, ...]
    default: str | None
    description: str
    aliases: tuple[str, ...] = ()
    at_least: int | None = None
    chooses: Literal["", "read", "write"] = ""
    operations: tuple[str, ...] = ()
    stored_as: str = ""
    fixed: bool = False
    since: int = OLDEST_VERSION
    origin: Literal["table", "caller"] = "caller"

    def __post_init__(self) -> None:
        known = REGISTRY.setdefault(self.key, self)
        if known != self:
            raise ValueError(f"option {self.key} is declared twice with different definitions")

    def __str__(self) -> str:
        return self.key

    @property
    def has_single_value(self) -> bool:
        """True if only one value is allowed."""
        return isinstance(self.kind, tuple) and len(self.kind) == 1

    @property
    def all_names(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return (self.key, *self.aliases)


REGISTRY: dict[str, Option] = {}
"""All declared options by name; complete once `pyhudi.options.supported` is imported."""


@dataclass(frozen=True, slots=True)
class Options:
    """Validated options: canonical keys, legal values. Build with `pyhudi.options.supported.parse_options`."""

    values: tuple[tuple[str, str], ...]
    extra: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        pairs = (f"{key}={redact_secret(key, value)}" for key, value in (*self.values, *self.extra))
        return f"Options({', '.join(pairs)})"

    def explicit(self, option: Option | str) -> str | None:
        """Return the caller's text for an option, None if it is not set."""
        return _by_name(self.values).get(str(option))

    def text(self, option: Option | str) -> str | None:
        """Return the value or the default; None if neither exists, or it is empty."""
        value = _by_name(self.values).get(str(option), REGISTRY[str(option)].default)
        return value if value else None

    def value_or_default(self, option: Option | str) -> str:
        """Return the value or the default of an option. Raises InvalidRequest if neither exists."""
        value = _by_name(self.values).get(str(option), REGISTRY[str(option)].default)
        if value is None:
            raise InvalidRequest(f"option {option} is required")
        return value

    def integer(self, option: Option | str) -> int:
        """Return the value of a numeric option, or its default, as an integer."""
        return int(self.value_or_default(option))

    def number(self, option: Option | str) -> float:
        """Return the value of a numeric option, or its default, as a float."""
        return float(self.value_or_default(option))

    def flag(self, option: Option | str) -> bool:
        """Return True if the value of an option, or its default, is `true`."""
        return self.value_or_default(option).lower() == "true"

    def names(self, option: Option | str) -> tuple[str, ...]:
        """Return a comma-separated list, without blanks around its parts."""
        return split_list(self.text(option))

    def with_prefix(self, *prefixes: str) -> dict[str, str]:
        """Return the forwarded keys with a prefix."""
        return {key: value for key, value in self.extra if key.startswith(prefixes)}

    def merged(self, values: Mapping[str, str], extra: Mapping[str, str] | None = None) -> Options:
        """Return these options, overridden by canonical values and by keys that are not options."""
        return Options(tuple({**dict(self.values), **values}.items()), tuple({**dict(self.extra), **(extra or {})}.items()))


@lru_cache(maxsize=256)
def _by_name(values: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(values)


def read_settings(settings: type[S], options: Options, **computed: object) -> S:
    """Read settings from validated options.

    A field with one option gets its value in the type of the field. A field of a settings type gets those settings.
    Other fields get their defaults. `computed` contains fields with other values.
    """
    # Both are frozen, so the settings of one set of options are cached.
    return _read_remaining(settings, options, computed) if computed else cast(S, _read(cast(type, settings), options))


@lru_cache(maxsize=256)
def _read(settings: type, options: Options) -> object:
    return _read_remaining(settings, options, {})


def _read_remaining(settings: type[S], options: Options, computed: Mapping[str, object]) -> S:
    values = dict(computed)
    for name, read in _readers(cast(type, settings)):
        if name not in values:
            values[name] = read(options)
    return settings(**values)


@lru_cache(maxsize=256)
def _settings_within(settings: type, options: Options) -> object:
    return getattr(settings, "of")(options)  # noqa: B009 - the type of a dataclass does not say what it has


@cache
def _readers(settings: type) -> tuple[tuple[str, Callable[[Options], object]], ...]:
    """The readers of fields with one option and of fields with nested settings."""
    readers: list[tuple[str, Callable[[Options], object]]] = []
    for name, type_, declared in _declared(settings):
        deciding = [option for option in declared if not option.has_single_value] or declared
        if len(deciding) == 1:
            readers.append((name, _reader(deciding[0], type_)))
        elif is_dataclass(type_) and hasattr(type_, "of"):
            readers.append((name, partial(_settings_within, cast(type, type_))))
    return tuple(readers)


class OptionSettings:
    """Base of settings of which every field is read from its declared options."""

    __slots__ = ()

    @classmethod
    def of(cls, options: Options) -> Self:
        """Build the settings from checked options. Raises InvalidRequest for values that contradict each other."""
        return read_settings(cls, options)


def settings_options(settings: type) -> frozenset[Option]:
    """Return the options that settings are read from, including those of nested settings."""
    result: set[Option] = set()
    for _, type_, declared in _declared(settings):
        result.update(declared)
        for part in _parts(type_):
            if is_dataclass(part) and isinstance(part, type):
                result |= settings_options(part)
    return frozenset(result)


@cache
def _declared(settings: type) -> tuple[tuple[str, Any, tuple[Option, ...]], ...]:
    """Each field: its name, its type, and its options."""
    hints = get_type_hints(settings, include_extras=True)
    result = []
    for field in fields(cast(Any, settings)):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            type_, *extras = get_args(hint)
            result.append((field.name, type_, tuple(extra for extra in extras if isinstance(extra, Option))))
        else:
            result.append((field.name, hint, ()))
    return tuple(result)


def _parts(type_: Any) -> Iterator[Any]:
    """The type, or the members of a union."""
    if get_origin(type_) in (Union, types.UnionType):
        yield from get_args(type_)
    else:
        yield type_


def _reader(option: Option, type_: Any) -> Callable[[Options], object]:
    """A reader of the option in the type of a field: text, number, flag or names; None if unset and the type allows it."""
    members = [part for part in _parts(type_) if part is not type(None)]
    may_be_unset = len(members) < len(list(_parts(type_)))
    (member,) = members
    read: Callable[[Options], object]
    if get_origin(member) is tuple:
        read = methodcaller("names", option)
    elif member is bool:
        read = methodcaller("flag", option)
    elif member is str:
        read = methodcaller("value_or_default", option)
    else:
        read = lambda options: member(options.value_or_default(option))  # noqa: E731 - a name for each of four ways to read
    return (lambda options: None if options.text(option) is None else read(options)) if may_be_unset else read
