"""Write answers as an engine does: with its own response classes, and send them.

Arguments: bootstrap servers, topic, the engine, and the directory with its Python source. What the
module of the classes imports beside pydantic is replaced by classes without content: gigabytes of
packages are not needed to write a response.
"""

import importlib
import json
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

from confluent_kafka import Producer
from pydantic import BaseModel
from pydantic_core import core_schema

MODULES = {
    "vllm": {
        "vllm.entrypoints.openai.chat_completion.protocol",
        "vllm.entrypoints.serve.engine.protocol",
        "vllm.entrypoints.generate.base.protocol",
        "vllm.exceptions",
    },
    "sglang": {"sglang.srt.entrypoints.openai.protocol"},
}
CLASSES = {
    "vllm": "vllm.entrypoints.openai.chat_completion.protocol",
    "sglang": "sglang.srt.entrypoints.openai.protocol",
}


class AnyClass(type):
    """The class of stand-ins: every use of one gives another."""

    def __getattr__(cls, name: str) -> Any:
        return attribute(name)

    def __or__(cls, _: object) -> Any:
        return cls

    __ror__ = __or__

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())

    def __call__(cls, *arguments: object, **_: object) -> Any:
        return returned(cls, arguments)


class StandIn(metaclass=AnyClass):
    """Stands for a class, a function or an object that is not there."""

    def __getattr__(self, name: str) -> Any:
        return attribute(name)

    def __call__(self, *arguments: object, **_: object) -> Any:
        return returned(type(self), arguments)

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Any:
        return core_schema.any_schema()


def attribute(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return 1000 if name.isupper() else StandIn  # A constant is a limit.


def returned(cls: type, arguments: tuple[object, ...]) -> Any:
    """Return what a decorator returns, or a stand-in."""
    is_decorator = len(arguments) == 1 and callable(arguments[0])
    return arguments[0] if is_decorator else type.__call__(cls)


class EmptyModule(ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return attribute(name)


class Finder(MetaPathFinder, Loader):
    """Finds the modules of the classes as they are, and all others of the engine empty."""

    def __init__(self, engine: str) -> None:
        self.empty = {
            engine,
            "torch",
            "transformers",
            "numpy",
            "PIL",
            "xgrammar",
            "regex",
            "fastapi",
        }
        self.kept = MODULES[engine]

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        is_kept = any(one == name or one.startswith(f"{name}.") for one in self.kept)
        if is_kept or name.split(".", maxsplit=1)[0] not in self.empty:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def written(engine: str, classes: Any, answer: dict[str, str]) -> str:
    """Return a body as the engine writes it."""
    if answer["content_type"] == "application/json":
        response = classes.ChatCompletionResponse.model_validate_json(answer["body"])
        refuse_unknown(response)
        return json.dumps(response.model_dump(), ensure_ascii=False)
    events = []
    for event in answer["body"].split("\n\n")[:-2]:
        text = event.removeprefix("data: ")
        chunk = classes.ChatCompletionStreamResponse.model_validate_json(text)
        refuse_unknown(chunk)
        if engine == "vllm":
            text = chunk.model_dump_json(exclude_unset=True, exclude_none=not chunk.choices)
        else:
            text = chunk.model_dump_json()
        events.append(f"data: {text}\n\n")
    return "".join([*events, "data: [DONE]\n\n"])


def refuse_unknown(model: BaseModel) -> None:
    """Raise for numbers that are not in the engine's classes under this name."""
    for name in ("metrics", "sglext"):
        statistics = getattr(model, name, None)
        for part in (model, statistics, getattr(statistics, "speculative_decoding", None)):
            if part is not None and part.model_extra:
                raise ValueError(f"not in {type(part).__name__}: {part.model_extra}")


bootstrap, topic, engine, source = sys.argv[1:]
sys.path.insert(0, source)
sys.meta_path.insert(0, Finder(engine))
classes = importlib.import_module(CLASSES[engine])
producer = Producer({"bootstrap.servers": bootstrap})
for line in sys.stdin:
    producer.produce(topic, written(engine, classes, json.loads(line)).encode())
producer.flush()
