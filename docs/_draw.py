"""Draws each docs/*.dot beside it, as SVG for light and for dark pages: python docs/_draw.py (needs graphviz).

Colours come by class. The digest of the source stands in the picture: docs/_hook.py compares it.
"""

import hashlib
import re
import subprocess
from pathlib import Path

STYLE = """
  .edge path { stroke: #52606d }  .edge polygon { fill: #52606d; stroke: #52606d }
  .node text { fill: white }  .why text { fill: #1f2933 }
  .step path { fill: #1e5f9e }  .good path { fill: #2b7a3d }  .bad path { fill: #b3362b }
  .stop path { fill: #946200 }  .last path { fill: #454f5b }
  @media (prefers-color-scheme: dark) {
    .why text { fill: #d9e2ec }  .edge path { stroke: #9fb3c8 }  .edge polygon { fill: #9fb3c8; stroke: #9fb3c8 }
  }
"""


def main() -> None:
    for source in sorted(Path(__file__).parent.glob("*.dot")):
        drawn = subprocess.run(["dot", "-Tsvg", source], capture_output=True, text=True, check=True).stdout
        drawn = re.sub(r"<!--.*?-->\n?|<title>.*?</title>\n?|<!DOCTYPE.*?>\n", "", drawn, flags=re.DOTALL)
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        head = f"\\g<0>\n<!-- {source.name}, SHA-256 {digest} -->\n<style>{STYLE}</style>"
        source.with_suffix(".svg").write_text(re.sub(r"<svg[^>]*>", head, drawn, count=1))


if __name__ == "__main__":
    main()
