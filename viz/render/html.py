"""Writes a picture as one HTML page that contains its styles, scripts and data, and needs no server. Notebooks show the
same page in a frame.
"""

import base64
import gzip
import html
import json
import re
from importlib import resources

from pathways.compiler.collector import collector_paused
from pathways.viz.render.page_data import page_data
from pathways.viz.scene import Scene

LIBRARIES = ("d3.min.js", "cytoscape.min.js", "cytoscape-dagre.min.js")
"""Libraries of the page, as published on npm. viz/page/vendor/README.md lists the versions."""
SCRIPTS = (
    "data.js",
    "words.js",
    "shell.js",
    "dataflow_groups.js",
    "dataflow_drawing.js",
    "dataflow.js",
    "schedule.js",
    "schedule_drawing.js",
    "schedule_choosing.js",
    "memory.js",
    "shardings.js",
    "devices.js",
    "start.js",
)
"""Scripts of the page, in dependency order."""
FRAME_HEIGHT_PX = 640
"""Height in pixels of a picture in a notebook."""


def page_text(scene: Scene) -> str:
    """Returns the page of a scene."""
    folder = resources.files("pathways.viz") / "page"

    def read(name: str) -> str:
        return folder.joinpath(*name.split("/")).read_text(encoding="utf-8")

    with collector_paused():
        data = json.dumps(page_data(scene), separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(data.encode(), 6, mtime=0)).decode()
    scripts = [read(f"vendor/{name}") for name in LIBRARIES] + [read(name) for name in SCRIPTS]
    parts = {
        "title": html.escape(scene.title),
        "style": read("style.css"),
        "data": packed,
        "scripts": "\n".join(f"<script>{_inline(s)}</script>" for s in scripts),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], read("index.html"))


def _inline(script: str) -> str:
    """Escapes a script for inlining, and drops its source map.

    HTML ends a script at the first closing tag, even inside a string.
    """
    kept = [line for line in script.splitlines() if not line.startswith("//# sourceMappingURL=")]
    return "\n".join(kept).replace("</script", "<\\/script")


def in_frame(scene: Scene) -> str:
    """Returns a frame with the page, for a notebook."""
    source = html.escape(page_text(scene), quote=True)
    title = html.escape(f"picture of {scene.title}", quote=True)
    return (
        f'<iframe title="{title}" srcdoc="{source}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{FRAME_HEIGHT_PX}px;border:0"></iframe>'
    )
