"""The core is pure, and only adapters know engines; import-linter checks who imports what."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from schemas import PublishedRecord
from tests.paths import ROOT

ENGINE_KEYS: Final = re.compile(
    r"spec_\w+|sglext\w*|speculative_decoding|mean_acceptance_length|\w*acceptance_histogram"
    r"|\w*drafts_histogram|per_step_\w+|total_\w*draft_tokens|num_spec_\w+|num_\w*draft_tokens"
)


MODULES: Final = [
    path.relative_to(ROOT).as_posix()
    for room in ("consumer/core", "schemas")
    for path in sorted((ROOT / room).rglob("*.py"))
]


def parsed(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_the_core_reads_no_clock_and_does_no_io(module: str) -> None:
    tree = parsed(module)
    if module == "schemas/published.py":  # Tells where the published files are.
        return
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
        ("consumer.core.partition", ["confluent_kafka", "structlog", "click", "rich", "logging"]),
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
    """Names of the record's own fields are allowed, even if an engine uses them as well."""
    known = {word for word in words(parsed(module)) if ENGINE_KEYS.fullmatch(word)}
    assert known <= set(PublishedRecord.__struct_fields__)


def test_the_search_for_engine_keys_finds_them_where_they_are() -> None:
    for name in ("sglang", "tensorrt_llm", "vllm"):
        found = set(words(parsed(f"consumer/core/adapters/{name}.py")))
        assert any(ENGINE_KEYS.fullmatch(word) for word in found)
