"""Find the labels of the result of a PromQL query from the query alone."""

from collections.abc import Iterable, Mapping

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    LabelModifierType,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

Labels = frozenset[str]


class QueryError(Exception):
    """A query asks for a metric or a label that does not exist."""


def labels_of(expr: Expr, metrics: Mapping[str, Labels]) -> Labels:
    """Return the labels of the result of a parsed query.

    Args:
        expr: the parsed query.
        metrics: the labels of each metric that exists.

    Raises:
        QueryError: the query asks for a metric or label that does not exist.

    """
    match expr:
        case VectorSelector():
            return _selected(expr, metrics)
        case MatrixSelector():
            return labels_of(expr.vector_selector, metrics)
        case ParenExpr() | UnaryExpr() | SubqueryExpr():
            return labels_of(expr.expr, metrics)
        case NumberLiteral():
            return frozenset()
        case AggregateExpr():
            inner = labels_of(expr.expr, metrics)
            if expr.modifier is None:  # topk and similar functions keep the labels.
                return inner if expr.param is not None else frozenset()
            _require(inner, expr.modifier.labels, expr)
            named = frozenset(expr.modifier.labels)
            return named if expr.modifier.type == AggModifierType.By else inner - named
        case Call():
            inner = frozenset().union(*(labels_of(each, metrics) for each in expr.args))
            if expr.func.name == "histogram_quantile":
                _require(inner, ["le"], expr)
                return inner - {"le"}
            return frozenset() if expr.func.name.startswith("absent") else inner
        case BinaryExpr():
            return _joined(expr, metrics)
    raise NotImplementedError(expr)


def _selected(selector: VectorSelector, metrics: Mapping[str, Labels]) -> Labels:
    name = selector.name or ""
    if name not in metrics:
        raise QueryError(f"there is no metric {name!r}")
    _require(metrics[name], (matcher.name for matcher in selector.matchers.matchers), selector)
    return metrics[name]


def _joined(expr: BinaryExpr, metrics: Mapping[str, Labels]) -> Labels:
    left, right = labels_of(expr.lhs, metrics), labels_of(expr.rhs, metrics)
    numbers = isinstance(expr.lhs, NumberLiteral), isinstance(expr.rhs, NumberLiteral)
    if any(numbers) or str(expr.op) == "or":
        return left | right
    if expr.modifier is not None and expr.modifier.matching is not None:
        assert expr.modifier.matching.type == LabelModifierType.Include, "ignoring is not used"
        _require(left, expr.modifier.matching.labels, expr)
        _require(right, expr.modifier.matching.labels, expr)
    elif left != right:
        raise QueryError(f"{sorted(left)} never match {sorted(right)}: {expr.prettify()}")
    return left


def _require(labels: Labels, wanted: Iterable[str], expr: Expr) -> None:
    if missing := set(wanted) - labels:
        raise QueryError(f"there is no label {sorted(missing)}: {expr.prettify()}")
