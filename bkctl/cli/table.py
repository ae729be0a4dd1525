"""Tables for people at a terminal, drawn by rich. A module of its own: rich is imported only here."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def draw_rich(out: TextIO, columns: tuple[str, ...], rows: list[list[str]], *, header: bool, color: bool) -> None:
    """Draws rows of text under their column names."""
    console = Console(file=out, color_system="auto" if color else None, highlight=False)
    table = Table(box=box.SIMPLE_HEAD if header else None, show_header=header, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    if not header and columns:
        table.columns[0].style = "bold"
    for row in rows:
        table.add_row(*[Text(text) for text in row])
    console.print(table)
