from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import deprecated

from scoutd.shim.intercept import Undo, swap

Log = list[tuple[Any, ...]]


def logged(log: Log) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(inner: Callable[..., Any]) -> Callable[..., Any]:
        def around(*args: Any, **kwargs: Any) -> Any:
            log.append((args, kwargs))
            return inner(*args, **kwargs)

        return around

    return wrap


def decorated(func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapper


def make_plain() -> Callable[..., Any]:
    def plain(a: int, b: int = 2, *rest: int, c: int, d: int = 4, **more: int) -> tuple[Any, ...]:
        return a, b, rest, c, d, more

    return plain


def make_closure() -> Callable[..., Any]:
    offset = 10

    def closure(a: int) -> int:
        return a + offset

    return closure


def positional_only(a: int, /, b: int = 3) -> tuple[int, int]:
    return a, b


class Base:
    def __init__(self) -> None:
        self.made = True


class Child(Base):
    def __init__(self, x: int) -> None:
        super().__init__()
        self.x = x


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "result"),
    [
        (make_plain(), (1,), {"c": 3}, (1, 2, (), 3, 4, {})),
        (make_plain(), (1, 5, 6), {"c": 3, "e": 8}, (1, 5, (6,), 3, 4, {"e": 8})),
        (make_closure(), (1,), {}, 11),
        (positional_only, (1,), {}, (1, 3)),
        (decorated(make_plain()), (1,), {"c": 3}, (1, 2, (), 3, 4, {})),
    ],
)
def test_the_call_is_seen_and_identity_signature_and_result_stay(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    log: Log = []
    undo = Undo()
    signature, name = inspect.signature(function), function.__qualname__
    swap(function, logged(log), undo)
    assert function(*args, **kwargs) == result
    assert len(log) == 1
    assert inspect.signature(function) == signature
    assert function.__qualname__ == name
    assert undo.run() == []
    assert function(*args, **kwargs) == result
    assert len(log) == 1, "after undo nothing is seen"


def test_undo_restores_the_very_code_and_cell() -> None:
    plain, wrapped = make_plain(), decorated(make_plain())
    assert wrapped.__closure__ is not None
    code, content = plain.__code__, wrapped.__closure__[0].cell_contents
    undo = Undo()
    swap(plain, logged([]), undo)
    swap(wrapped, logged([]), undo)
    undo.run()
    assert plain.__code__ is code
    assert wrapped.__closure__[0].cell_contents is content


def test_a_constructor_that_calls_super_works() -> None:
    log: Log = []
    undo = Undo()
    swap(Child.__init__, logged(log), undo)
    made = Child(5)
    undo.run()
    assert (made.made, made.x, len(log)) == (True, 5, 1)


def test_what_somebody_put_in_front_later_is_left_in_place() -> None:
    plain = make_plain()
    undo = Undo()
    swap(plain, logged([]), undo)
    theirs = make_plain().__code__.replace(co_name="theirs")
    plain.__code__ = theirs
    undo.run()
    assert plain.__code__ is theirs


def test_a_builtin_is_refused() -> None:
    with pytest.raises(TypeError):
        swap(len, logged([]), Undo())


@pytest.mark.parametrize("outermost", [False, True])
def test_a_deprecation_warns_with_the_line_that_it_shows_without_us(outermost: bool) -> None:
    old = deprecated("use another", category=FutureWarning)(make_plain())
    function = old if outermost else decorated(old)

    def warned() -> tuple[str, int]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            function(1, c=3)
        (warning,) = seen
        return warning.filename, warning.lineno

    before, log, undo = warned(), [], Undo()  # type: ignore[var-annotated]
    swap(function, logged(log), undo)
    assert warned() == before
    assert len(log) == 1
    assert undo.run() == []
    assert warned() == before
    assert len(log) == 1
