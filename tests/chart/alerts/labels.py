"""Which labels the result of a PromQL query has, found from the query alone."""

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
    """Return the labels of a query's result.

    Args:
        expr: the parsed query.
        metrics: the labels of each metric that exists.

    Raises:
        QueryError: a metric or label in it does not exist.

    """
    match expr:
        case VectorSelector():
            return _selected(expr, metrics)
        case MatrixSelector():
            return _selected(expr.vector_selector, metrics)
        case ParenExpr() | UnaryExpr() | SubqueryExpr():
            return labels_of(expr.expr, metrics)
        case NumberLiteral():
            return frozenset()
        case AggregateExpr():
            return _aggregated(expr, labels_of(expr.expr, metrics))
        case Call():
            return _returned(expr, metrics)
        case BinaryExpr():
            return _joined(expr, metrics)
    raise NotImplementedError(expr)


def _selected(selector: VectorSelector, metrics: Mapping[str, Labels]) -> Labels:
    name = selector.name or ""
    if name not in metrics:
        raise QueryError(f"there is no metric {name!r}")
    _have(metrics[name], (matcher.name for matcher in selector.matchers.matchers), selector)
    return metrics[name]


def _aggregated(expr: AggregateExpr, inner: Labels) -> Labels:
    if expr.modifier is None:
        # topk and its like choose among what is there.
        return inner if expr.param is not None else frozenset()
    _have(inner, expr.modifier.labels, expr)
    named = frozenset(expr.modifier.labels)
    return named if expr.modifier.type == AggModifierType.By else inner - named


def _returned(call: Call, metrics: Mapping[str, Labels]) -> Labels:
    inner: Labels = frozenset().union(*(labels_of(argument, metrics) for argument in call.args))
    if call.func.name.startswith("absent"):
        return frozenset()
    if call.func.name == "histogram_quantile":
        _have(inner, ["le"], call)
        return inner - {"le"}
    return inner


def _joined(expr: BinaryExpr, metrics: Mapping[str, Labels]) -> Labels:
    left, right = labels_of(expr.lhs, metrics), labels_of(expr.rhs, metrics)
    if isinstance(expr.lhs, NumberLiteral):
        return right
    if isinstance(expr.rhs, NumberLiteral):
        return left
    if str(expr.op) == "or":
        return left | right
    if expr.modifier is not None and expr.modifier.matching is not None:
        assert expr.modifier.matching.type == LabelModifierType.Include, "ignoring is not used"
        _have(left, expr.modifier.matching.labels, expr)
        _have(right, expr.modifier.matching.labels, expr)
    elif left != right:
        raise QueryError(f"{sorted(left)} never match {sorted(right)}: {expr.prettify()}")
    return left


def _have(labels: Labels, wanted: Iterable[str], expr: Expr) -> None:
    if missing := set(wanted) - labels:
        raise QueryError(f"there is no label {sorted(missing)}: {expr.prettify()}")
