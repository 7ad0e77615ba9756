"""Draw curves into one self-contained SVG file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 420
_HEIGHT: Final = 260
_LEFT: Final = 60
_RIGHT: Final = 20
_TOP: Final = 34
_BOTTOM: Final = 46
_COLUMNS: Final = 2
_STYLE: Final = (
    "text{font:11px sans-serif;fill:#222}.t{font-weight:bold;font-size:13px}"
    ".g{stroke:#ddd}.l{fill:none;stroke:#1565c0;stroke-width:2}.p{fill:#1565c0}"
)

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """One panel: its title, the names of its axes, and its points in the order of x.

    The y axis starts at zero.
    """

    title: str
    x: str
    y: str
    points: Sequence[Point]
    logarithmic: bool = True


def write_svg(path: Path, curves: Sequence[Curve]) -> None:
    """Draw all curves into one file."""
    rows = math.ceil(len(curves) / _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT
    panels = [
        f'<g transform="translate({number % _COLUMNS * _WIDTH},{number // _COLUMNS * _HEIGHT})">'
        f"{_panel(curve)}</g>"
        for number, curve in enumerate(curves)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{_STYLE}</style>'
        '<rect width="100%" height="100%" fill="#fff"/>'
    )
    path.write_text("\n".join((head, *panels, "</svg>\n")), encoding="utf-8")


def _panel(curve: Curve) -> str:
    places = [math.log10(x) if curve.logarithmic else x for x, _ in curve.points]
    low, high = min(places), max(places)
    top = _round_up(max(y for _, y in curve.points))
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(place: float, y: float) -> Point:
        right = (place - low) / (high - low) if high > low else 0.5
        return _LEFT + right * wide, _TOP + (1 - y / top) * tall

    dots = [at(place, y) for place, (_, y) in zip(places, curve.points, strict=True)]
    parts = [_text(_WIDTH / 2, 18, curve.title, name="t")]
    for step in range(5):
        y = top * step / 4
        left, down = at(low, y)[0] if high > low else _LEFT, at(low, y)[1]
        parts.append(f'<path class="g" d="M{left:.0f} {down:.1f}h{wide}"/>')
        parts.append(_text(_LEFT - 6, down + 4, _short(y), anchor="end"))
    for (x, _), (right, _) in zip(curve.points, dots, strict=True):
        parts.append(_text(right, _HEIGHT - _BOTTOM + 16, _short(x)))
    parts += (
        _text(_WIDTH / 2, _HEIGHT - 10, curve.x),
        f'<g transform="translate(14,{_TOP + tall / 2:.0f}) rotate(-90)">',
        f"{_text(0, 0, curve.y)}</g>",
        f'<polyline class="l" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in dots)}"/>',
        *(f'<circle class="p" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in dots),
    )
    return "".join(parts)


def _text(x: float, y: float, text: str, *, anchor: str = "middle", name: str = "") -> str:
    return (
        f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 4, 8, 10, 20, ..., so that labels are short."""
    unit = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(unit * step for step in (1, 2, 4, 8, 10) if unit * step >= value)


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.3g}"
