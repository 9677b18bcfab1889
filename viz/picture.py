"""Defines `Picture`, which the `visualize` methods of the API return. A notebook displays it, and `save` writes a file
whose suffix chooses the format.

`pwc viz` creates one, too, through `pictures.py`.
"""

from collections.abc import Callable
from pathlib import Path

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.files import write_whole
from pathways.viz.errors import UnknownPicture
from pathways.viz.render.dot import dot_text
from pathways.viz.render.drawing import drawn
from pathways.viz.render.html import in_frame, page_text
from pathways.viz.render.model_explorer import model_explorer_text
from pathways.viz.render.text import text_of_schedule
from pathways.viz.scene import Scene


class Picture(Scene):
    """A drawing of a program. A notebook displays it; `save` writes a page, a drawing, text or a graph."""

    def html(self) -> str:
        """Returns the HTML page, which needs no network."""
        return page_text(self)

    def text(self, width: int = 0) -> str:
        """Returns the schedule as text for a terminal of `width` columns; 0 for no limit."""
        return text_of_schedule(self, width)

    def save(self, path: str | Path) -> Path:
        """Writes the picture to a file and returns its path.

        The suffix selects the format: .html, .svg, .png, .dot, .json (Model Explorer) or .txt. Raises PWC0820 for
        another suffix, and PWC0821 if a drawing needs packages that are not installed. Raises PWC0823 if the picture
        has nothing to show in this format, PWC0606 if the file cannot be written.
        """
        target = Path(path)
        writer = writer_of(target)
        write_whole(target, writer(self))
        return target

    def _repr_html_(self) -> str:
        return in_frame(self)

    def __repr__(self) -> str:
        phases = ", ".join(g.phase for g in self.graphs) or "none"
        return f"<pw.Picture of {self.title}: phases {phases}; {len(self.runs)} recorded runs>"


def writer_of(path: Path) -> "Writer":
    """Returns the function that writes files with this suffix. Raises PWC0820."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise PathwaysError(UnknownPicture(path=str(path), ending=path.suffix, known=", ".join(sorted(WRITERS))))
    return writer


def _svg(scene: Scene) -> bytes:
    return drawn(scene, "svg")


def _png(scene: Scene) -> bytes:
    return drawn(scene, "png")


def _txt(scene: Scene) -> str:
    return f"{text_of_schedule(scene)}\n"


Writer = Callable[[Scene], str | bytes]
WRITERS: dict[str, Writer] = {
    ".html": page_text,
    ".svg": _svg,
    ".png": _png,
    ".dot": dot_text,
    ".json": model_explorer_text,
    ".txt": _txt,
}
"""Writers by file suffix. A new format is a row here and a module in render/."""
