"""Draw curves into one self-contained SVG file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment

_LEFT, _WIDE, _TOP, _TALL = 60, 340, 34, 180  # The area of the curve in its panel of 420 by 260.
_TEMPLATE: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" width="840" height="{{ height }}" \
viewBox="0 0 840 {{ height }}"><style>text{font:11px sans-serif;fill:#222;text-anchor:middle}\
.t{font-weight:bold;font-size:13px}.e{text-anchor:end}.g{stroke:#ddd}\
.l{fill:none;stroke:#1565c0;stroke-width:2}.p{fill:#1565c0}</style>
<rect width="100%" height="100%" fill="#fff"/>
{% for panel in panels %}
<g transform="translate({{ loop.index0 % 2 * 420 }},{{ loop.index0 // 2 * 260 }})">
<text class="t" x="210" y="18">{{ panel.curve.title }}</text>
{% for y, label in panel.y_labels %}
<path class="g" d="M60 {{ y }}h340"/><text class="e" x="54" y="{{ y + 4 }}">{{ label }}</text>
{% endfor %}
{% for x, y, label in panel.dots %}
<text x="{{ x }}" y="230">{{ label }}</text><circle class="p" cx="{{ x }}" cy="{{ y }}" r="3"/>
{% endfor %}
<text x="210" y="250">{{ panel.curve.x }}</text>
<g transform="translate(14,124) rotate(-90)"><text>{{ panel.curve.y }}</text></g>
<polyline class="l" points="{% for x, y, _ in panel.dots %}{{ x }},{{ y }} {% endfor %}"/>
</g>
{% endfor %}
</svg>
"""

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
    template = Environment(autoescape=True, trim_blocks=True).from_string(_TEMPLATE)
    height = math.ceil(len(curves) / 2) * 260
    text = template.render(height=height, panels=[_panel(curve) for curve in curves])
    path.write_text(text, encoding="utf-8")


def _panel(curve: Curve) -> dict[str, Any]:
    """Return a curve with the places of its dots and of the labels of its y axis."""
    scaled = [math.log10(x) if curve.logarithmic else x for x, _ in curve.points]
    span = (scaled[-1] - scaled[0]) or 1.0
    top = _round_up(max(y for _, y in curve.points))

    def down(y: float) -> float:
        return round(_TOP + (1 - y / top) * _TALL, 1)

    return {
        "curve": curve,
        "y_labels": [(down(top * step / 4), _short(top * step / 4)) for step in range(5)],
        "dots": [
            (round(_LEFT + (place - scaled[0]) / span * _WIDE, 1), down(y), _short(x))
            for place, (x, y) in zip(scaled, curve.points, strict=True)
        ],
    }


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 4, 8, 10, 20, ..., so that labels are short."""
    unit = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(unit * step for step in (1, 2, 4, 8, 10) if unit * step >= value)


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.3g}"
