"""The core is pure, and its rooms import each other in one direction only."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from schemas import PublishedRecord

ROOT: Final = Path(__file__).parent.parent.parent
SHARED: Final = {"consumer.message", "consumer.events"}
BODIES: Final = {"consumer.bodies", "schemas"}
# What each part of the core may import of the project. The shell may import everything.
MAY_IMPORT: Final = {
    "schemas": {"schemas"},
    "consumer/credentials.py": set[str](),
    "consumer/message.py": set[str](),
    "consumer/events.py": BODIES,
    "consumer/bodies": BODIES,
    "consumer/envelopes": {"consumer.envelopes", *BODIES, *SHARED},
    "consumer/adapters": {"consumer.adapters", "schemas"},
    "consumer/stream_time.py": {"consumer.message"},
    "consumer/checkpoint.py": {"consumer.stream_time"},
    "consumer/sequence.py": set[str](),
    "consumer/segments.py": BODIES,
    "consumer/reassembly.py": {
        "consumer.checkpoint",
        "consumer.segments",
        "consumer.sequence",
        "consumer.stream_time",
        *BODIES,
        *SHARED,
    },
    "consumer/records.py": {
        "consumer.adapters",
        "consumer.credentials",
        "consumer.envelopes.times",
        "consumer.reassembly",
        "consumer.message",
        "schemas",
    },
    "consumer/pipeline.py": {
        "consumer.adapters",
        "consumer.checkpoint",
        "consumer.envelopes",
        "consumer.reassembly",
        "consumer.records",
        "consumer.stream_time",
        *BODIES,
        *SHARED,
    },
}
LIBRARIES: Final = {"schemas": {"msgspec"}, "consumer": {"msgspec", "zstandard"}}
IMPURE: Final = {"asyncio", "os", "random", "secrets", "socket", "subprocess", "threading", "time"}
ENGINE_KEYS: Final = re.compile(
    r"spec_\w+|sglext\w*|speculative_decoding|mean_acceptance_length|\w*acceptance_histogram"
    r"|\w*drafts_histogram|per_step_\w+|total_\w*draft_tokens|num_spec_\w+|num_\w*draft_tokens"
)


def core() -> Iterator[tuple[str, Path]]:
    """Return every module of the core with the part that it belongs to."""
    for part in MAY_IMPORT:
        path = ROOT / part
        for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield part, module


MODULES: Final = {path.relative_to(ROOT).as_posix(): part for part, path in core()}


def imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def parsed(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def is_below(name: str, parents: set[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_room_may(module: str) -> None:
    part = MODULES[module]
    for name in imports(parsed(module)):
        first = name.partition(".")[0]
        if first in ("consumer", "schemas"):
            assert is_below(name, MAY_IMPORT[part]), f"{module} imports {name}"
        elif first not in sys.stdlib_module_names:
            assert first in LIBRARIES[module.partition("/")[0]], f"{module} imports {name}"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_the_core_reads_no_clock_and_does_no_io(module: str) -> None:
    tree = parsed(module)
    if module == "schemas/published.py":  # Tells where the published files are.
        return
    assert not imports(tree) & IMPURE
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {
                (name, attribute)
                for name in ("datetime", "date")
                for attribute in ("now", "utcnow", "today")
            }
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "exec", "eval"}


@pytest.mark.parametrize(
    ("imported", "unwanted"),
    [
        ("consumer.pipeline", ["confluent_kafka", "structlog", "click", "rich", "logging"]),
        ("schemas", ["consumer", "confluent_kafka", "structlog", "zstandard"]),
    ],
)
def test_nothing_unwanted_is_loaded_on_the_way(imported: str, unwanted: list[str]) -> None:
    program = f"import sys, {imported}; print([n for n in {unwanted} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def words(tree: ast.Module) -> Iterator[str]:
    """Return the names and texts of a module, but for its documentation."""
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            yield from re.findall(r"\w+", text) if isinstance(text, str) else ()
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword) and node.arg is not None:
            yield node.arg


def modules_outside_adapters() -> list[str]:
    return [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "consumer").rglob("*.py"))
        if not {"adapters", "demo"} & set(path.relative_to(ROOT).parts)
    ]


@pytest.mark.parametrize("module", modules_outside_adapters())
def test_only_adapters_know_engines(module: str) -> None:
    """Names of the record's own fields are ours, whichever engine uses them as well."""
    known = {word for word in words(parsed(module)) if ENGINE_KEYS.fullmatch(word)}
    assert known <= set(PublishedRecord.__struct_fields__)


def test_the_search_for_engine_keys_finds_them_where_they_are() -> None:
    for name in ("sglang", "tensorrt_llm", "vllm"):
        found = set(words(parsed(f"consumer/adapters/{name}.py")))
        assert any(ENGINE_KEYS.fullmatch(word) for word in found)
