"""Draws boxes, arrows and text as SVG, in one color: that of the surrounding page, or of light and dark mode."""

from dataclasses import dataclass, field
from html import escape

STYLE = (
    ":root.diagram{color:#24292f}"
    "@media(prefers-color-scheme:dark){:root.diagram{color:#d0d7de}}"
    ".diagram text{fill:currentColor;font:13px system-ui,sans-serif;text-anchor:middle}"
    ".diagram .small{font-size:11px}.diagram .left{text-anchor:start}"
    ".diagram rect,.diagram path{stroke:currentColor;fill:none}.diagram .full{fill:currentColor;fill-opacity:.16}"
    ".diagram .pale{fill:currentColor;fill-opacity:.06}.diagram .dashed{stroke-dasharray:4 3}"
)
"""`:root` matches only a picture in its own file. Inside a page the picture uses the page's color."""


@dataclass
class Drawing:
    """A drawing: its elements, in the order in which they are drawn."""

    width: int
    height: int
    parts: list[str] = field(default_factory=list[str])

    def box(self, x: float, y: float, width: float, height: float, label: str = "", kind: str = "") -> None:
        """Adds a box with its label in the middle. `kind` is a class of the style: full, pale or dashed."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"{_of_class(kind)}/>')
        if label:
            self.text(x + width / 2, y + height / 2 + 4.5, label)

    def text(self, x: float, y: float, label: str, kind: str = "") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{_of_class(kind)}>{escape(label)}</text>')

    def arrow(self, *points: tuple[float, float], kind: str = "") -> None:
        """Adds a line through the points, with an arrowhead at the last one."""
        (x0, y0), (x1, y1) = points[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        dx, dy = 7 * (x1 - x0) / length, 7 * (y1 - y0) / length
        line = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path d="{line}"{_of_class(kind)}/>')
        left, right = (x1 - dx - dy / 2, y1 - dy + dx / 2), (x1 - dx + dy / 2, y1 - dy - dx / 2)
        self.parts.append(f'<path d="M{left[0]:g} {left[1]:g}L{x1:g} {y1:g}L{right[0]:g} {right[1]:g}"/>')

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" style="max-width:100%;height:auto">'
        )
        return "\n".join([head, f"<style>{STYLE}</style>", *self.parts, "</svg>", ""])


def _of_class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
