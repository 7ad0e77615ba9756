"""Imports a few modules of an engine from its source, and stand-ins for all else that they import.

An engine needs gigabytes of packages to run, but none of them to write a response or a log line.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic_core import core_schema

_PACKAGES = {
    "aiohttp",
    "fastapi",
    "prometheus_client",
    "pybase64",
    "starlette",
    "tqdm",
    "urllib3",
    "numpy",
    "PIL",
    "regex",
    "torch",
    "transformers",
    "xgrammar",
}


class AnyClass(type):
    """The class of stand-ins: every use of one gives another."""

    def __getattr__(cls, name: str) -> Any:
        return _attribute(name)

    def __or__(cls, _: object) -> Any:
        return cls

    __ror__ = __or__

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())

    def __call__(cls, *arguments: object, **_: object) -> Any:
        return _returned(cls, arguments)


class StandIn(metaclass=AnyClass):
    """Stands for a class, a function or an object that is not there."""

    def __getattr__(self, name: str) -> Any:
        return _attribute(name)

    def __call__(self, *arguments: object, **_: object) -> Any:
        return _returned(type(self), arguments)

    def __bool__(self) -> bool:
        return False

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Any:
        return core_schema.any_schema()


def _attribute(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return 1000 if name.isupper() else StandIn  # A constant is a limit.


def _returned(cls: type, arguments: tuple[object, ...]) -> Any:
    """Return what a decorator returns, or a stand-in."""
    is_decorator = len(arguments) == 1 and callable(arguments[0])
    return arguments[0] if is_decorator else type.__call__(cls)


class EmptyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return _attribute(name)


class _Finder(MetaPathFinder, Loader):
    def __init__(self, source: Path, engine: str, modules: set[str]) -> None:
        self._source = source
        self._empty = _PACKAGES | {engine}
        self._modules = modules

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        parts = name.split(".")
        if name in self._modules or parts[0] not in self._empty:
            return None
        spec = ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [str(self._source.joinpath(*parts))]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def import_only(source: str, engine: str, *modules: str) -> None:
    """Let these modules of an engine be imported from its source, and nothing else of it."""
    sys.path.insert(0, source)
    sys.meta_path.insert(0, _Finder(Path(source), engine, set(modules)))
