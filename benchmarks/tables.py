"""Results as tables: aligned for people, or one JSON object with nothing rounded."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """What one part of a benchmark found.

    ``columns`` maps each heading to the format of its values, for instance ``"{:.1f} ms"``; a value
    that is None is shown as a dash. ``notes`` are sentences for below the table.
    """

    title: str
    columns: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        cells = [list(self.columns)] + [
            [
                "–" if value is None else form.format(value)
                for value, form in zip(row, self.columns.values(), strict=True)
            ]
            for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            f"  {name:<{widths[0]}}"
            + "".join(f"  {cell:>{width}}" for cell, width in zip(row, widths[1:], strict=True))
            for name, *row in (cells if self.rows else [])
        ]
        return "\n".join([self.title, *lines, *(f"  {note}" for note in self.notes)])


def show(tables: Iterable[Table], as_json: bool) -> None:
    """Print each table as soon as it is there, or in the end one JSON object: title →
    ``{"rows": [{heading: value}], "notes": [sentence]}``."""
    found = {}
    for table in tables:
        if not as_json:
            print(f"{table}\n", flush=True)
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        found[table.title] = {"rows": rows, "notes": table.notes}
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
