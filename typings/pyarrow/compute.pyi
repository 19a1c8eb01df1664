"""Functions on arrays, typed by the container alone: a function of chunked arrays gives a chunked array, of arrays an array."""

from collections.abc import Sequence
from typing import Any, Protocol, overload

from . import Array, ChunkedArray, DataType, Scalar, StructArray

class ArrowFunctionOptions: ...

class Expression:
    def __eq__(self, other: object) -> Expression: ...  # type: ignore[override]
    def __ne__(self, other: object) -> Expression: ...  # type: ignore[override]
    def __lt__(self, other: object) -> Expression: ...
    def __le__(self, other: object) -> Expression: ...
    def __gt__(self, other: object) -> Expression: ...
    def __ge__(self, other: object) -> Expression: ...
    def __add__(self, other: object) -> Expression: ...
    def __and__(self, other: object) -> Expression: ...
    def __or__(self, other: object) -> Expression: ...
    def __invert__(self) -> Expression: ...
    def isin(self, values: object) -> Expression: ...
    def is_null(self, nan_is_null: bool = ...) -> Expression: ...
    def is_valid(self) -> Expression: ...
    def is_nan(self) -> Expression: ...
    def cast(self, type: DataType | None = ..., safe: bool | None = ..., options: CastOptions | None = ...) -> Expression: ...
    def equals(self, other: Expression) -> bool: ...

class CastOptions:
    def __init__(self, target_type: DataType | None = ..., **allowed: bool) -> None: ...
    @staticmethod
    def safe(target_type: DataType | None = ...) -> CastOptions: ...
    @staticmethod
    def unsafe(target_type: DataType | None = ...) -> CastOptions: ...

class _Unary(Protocol):
    """One column in, one of the same length out; arguments after it are the function's options."""

    @overload
    def __call__(self, values: Array, /, *arguments: Any, **options: Any) -> Array: ...
    @overload
    def __call__(self, values: ChunkedArray, /, *arguments: Any, **options: Any) -> ChunkedArray: ...
    @overload
    def __call__(self, values: Expression, /, *arguments: Any, **options: Any) -> Expression: ...
    @overload
    def __call__(self, values: Scalar, /, *arguments: Any, **options: Any) -> Scalar: ...

class _Binary(Protocol):
    """Two columns, or a column and a value, in; one column out.  A chunked array on either side makes it one."""

    @overload
    def __call__(self, x: ChunkedArray, y: object, /, **options: Any) -> ChunkedArray: ...
    @overload
    def __call__(self, x: Array, y: ChunkedArray, /, **options: Any) -> ChunkedArray: ...
    @overload
    def __call__(self, x: Array, y: object, /, **options: Any) -> Array: ...
    @overload
    def __call__(self, x: Expression, y: object, /, **options: Any) -> Expression: ...
    @overload
    def __call__(self, x: object, y: Array, /, **options: Any) -> Array: ...
    @overload
    def __call__(self, x: object, y: ChunkedArray, /, **options: Any) -> ChunkedArray: ...
    @overload
    def __call__(self, x: object, y: Expression, /, **options: Any) -> Expression: ...
    @overload
    def __call__(self, x: Scalar, y: object, /, **options: Any) -> Scalar: ...
    @overload
    def __call__(self, x: object, y: Scalar, /, **options: Any) -> Scalar: ...

class _Variadic(Protocol):
    """Columns and values in, one column out."""

    @overload
    def __call__(self, first: ChunkedArray, /, *more: Any, **options: Any) -> ChunkedArray: ...
    @overload
    def __call__(self, first: Expression, /, *more: Any, **options: Any) -> Expression: ...
    @overload
    def __call__(self, first: object, /, *more: Any, **options: Any) -> Array: ...

class _Aggregate(Protocol):
    def __call__(self, values: Array | ChunkedArray, /, *arguments: Any, **options: Any) -> Scalar: ...

abs: _Unary
array_sort_indices: _Unary
ascii_lower: _Unary
ascii_ltrim: _Unary
ascii_upper: _Unary
assume_timezone: _Unary
binary_length: _Unary
binary_slice: _Unary
cast: _Unary
ceil: _Unary
count_substring: _Unary
day: _Unary
day_of_week: _Unary
day_of_year: _Unary
iso_week: _Unary
quarter: _Unary
dictionary_encode: _Unary
drop_null: _Unary
ends_with: _Unary
extract_regex: _Unary
floor: _Unary
floor_temporal: _Unary
hour: _Unary
index_in: _Unary
invert: _Unary
is_finite: _Unary
is_in: _Unary
is_inf: _Unary
is_nan: _Unary
is_null: _Unary
is_valid: _Unary
list_element: _Unary
list_flatten: _Unary
list_parent_indices: _Unary
list_value_length: _Unary
local_timestamp: _Unary
match_substring: _Unary
match_substring_regex: _Unary
minute: _Unary
month: _Unary
negate: _Unary
replace_substring: _Unary
replace_substring_regex: _Unary
round: _Unary
run_end_decode: _Unary
run_end_encode: _Unary
second: _Unary
split_pattern: _Unary
match_like: _Unary
starts_with: _Unary
strftime: _Unary
string_is_ascii: _Unary
strptime: _Unary
struct_field: _Unary
trunc: _Unary
unique: _Unary
utf8_length: _Unary
utf8_lower: _Unary
utf8_lpad: _Unary
utf8_ltrim: _Unary
utf8_ltrim_whitespace: _Unary
utf8_replace_slice: _Unary
utf8_rpad: _Unary
utf8_rtrim: _Unary
utf8_slice_codeunits: _Unary
utf8_trim: _Unary
utf8_trim_whitespace: _Unary
utf8_upper: _Unary
year: _Unary

add: _Binary
and_: _Binary
and_kleene: _Binary
and_not: _Binary
bit_wise_and: _Binary
divide: _Binary
equal: _Binary
fill_null: _Binary
greater: _Binary
greater_equal: _Binary
less: _Binary
less_equal: _Binary
multiply: _Binary
not_equal: _Binary
or_: _Binary
or_kleene: _Binary
power: _Binary
shift_left: _Binary
shift_right: _Binary
subtract: _Binary
xor: _Binary

all: _Aggregate
any: _Aggregate
count: _Aggregate
count_distinct: _Aggregate
first: _Aggregate
index: _Aggregate
last: _Aggregate
max: _Aggregate
mean: _Aggregate
min: _Aggregate
min_max: _Aggregate
sum: _Aggregate

@overload
def if_else(cond: ChunkedArray, left: object, right: object, /) -> ChunkedArray: ...
@overload
def if_else(cond: Array, left: ChunkedArray, right: object, /) -> ChunkedArray: ...  # type: ignore[overload-overlap]
@overload
def if_else(cond: Array, left: object, right: ChunkedArray, /) -> ChunkedArray: ...  # type: ignore[overload-overlap]
@overload
def if_else(cond: Array, left: object, right: object, /) -> Array: ...
@overload
def if_else(cond: Scalar | bool, left: Array, right: object, /) -> Array: ...
@overload
def if_else(cond: Expression, left: object, right: object, /) -> Expression: ...

binary_join: _Variadic
binary_join_element_wise: _Variadic
coalesce: _Variadic
make_struct: _Variadic
max_element_wise: _Variadic
min_element_wise: _Variadic

@overload
def replace_with_mask(values: Array, mask: object, replacements: object, /) -> Array: ...
@overload
def replace_with_mask(values: ChunkedArray, mask: object, replacements: object, /) -> ChunkedArray: ...
def sort_indices(input: object, /, sort_keys: Sequence[Any] = ..., **options: Any) -> Array: ...
def value_counts(values: Array | ChunkedArray, /) -> StructArray: ...
def take(data: Any, indices: object, **options: Any) -> Any: ...
def filter(data: Any, mask: object, **options: Any) -> Any: ...
def field(*name_or_index: str | int) -> Expression: ...
def scalar(value: object) -> Expression: ...
