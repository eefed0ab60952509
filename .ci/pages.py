"""The pages that people read, in parts: lines outside of code, headings, code blocks. For the checks of pages."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Written by programs: their lines are checked where they come from.
GENERATED = {"docs/command-line.md", "docs/kinds.md", "docs/semantics.md", "docs/wrong-graphs.md"}
NOT_RUN = re.compile(r"<!-- not run: (.+) -->$")


class Page:
    def __init__(self, name):
        self.name = name
        text = (ROOT / name).read_text().splitlines()
        # Outside of code: number and line. Code blocks: number of the fence, its words, the lines, the line above.
        self.lines, self.blocks = [], []
        fence = None
        for number, line in enumerate(text, 1):
            if fence is None and (opened := re.match(r"\s*(```+)(.*)$", line)):
                fence = opened[1]
                above = text[number - 2].strip() if number > 1 else ""
                self.blocks.append((number, opened[2].strip(), [], above))
            elif fence and line.strip() == fence:
                fence = None
            elif fence:
                self.blocks[-1][2].append(line)
            else:
                self.lines.append((number, line))

    def anchors(self):
        """The headings as GitHub and mdBook name them."""
        found = {}
        for _, line in self.lines:
            if heading := re.match(r"#+ +(.*?) *#*$", line):
                text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "")
                name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
                found[name] = found.get(name, -1) + 1
        return {name if n == 0 else f"{name}-{n}" for name, times in found.items() for n in range(times + 1)}


def book():
    """The pages of the book."""
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md") if path.name != "SUMMARY.md")
