"""How often each outcome occurred, as the log and a replay show it."""

from collections import Counter

Total = tuple[str, str, str | None]  # Kind, outcome and reason.


def named(totals: Counter[Total]) -> dict[str, int]:
    """Return totals by their names: `request incomplete(gap)`."""
    return {
        f"{kind} {outcome}".strip() + (f"({reason})" if reason else ""): count
        for (kind, outcome, reason), count in sorted(
            totals.items(), key=lambda item: tuple(map(str, item[0]))
        )
    }
