"""HTML in which text is text: whatever is not made here is escaped, so that a sentence of a corpus can run nothing."""

import base64
import hashlib
import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Sequence

ASSETS = Path(__file__).with_name("report_assets")
_VOID = ("br", "col", "hr", "img", "input", "link", "meta")


class Markup(str):
    """Text that is HTML already; only this module and :func:`join` of its results make it."""


def tag(element: str, *children: Any, **attributes: Any) -> Markup:
    """One element.

    Args:
        element: its name.
        *children: :class:`Markup` stays as it is; everything else is escaped. None is left out.
        **attributes: values are escaped; True stands for the bare name, None and False leave it out. An underscore at
            the end is dropped (``class_``), those within become hyphens (``data_label``).
    """
    words = [element]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            words.append(f'{key}="{html.escape(str(value))}"')
    opening = f"<{' '.join(words)}>"
    return Markup(opening if element in _VOID else f"{opening}{join(children)}</{element}>")


def join(children: Iterable[Any]) -> Markup:
    """Elements and texts one behind the other; texts are escaped."""
    return Markup("".join(c if isinstance(c, Markup) else html.escape(str(c)) for c in children if c is not None))


def table(caption: Any, head: Sequence[Any], rows: Sequence[Sequence[Any]], **attributes: Any) -> Markup:
    """A table whose first column names its rows, in a box that scrolls sideways on a narrow screen."""
    head_row = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    inner = tag("table", tag("caption", caption), tag("thead", head_row), tag("tbody", *body), **attributes)
    # A box that scrolls must be reachable by keyboard, and then needs a name.
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=re.sub("<.*?>", "", str(caption)))


def details(summary: Any, *children: Any, **attributes: Any) -> Markup:
    """A part that is folded until asked for."""
    return tag("details", tag("summary", summary), *children, **attributes)


@dataclass
class Section:
    """A part of the page.

    Attributes:
        identity: its anchor.
        title: its heading.
        content: what stands below.
    """

    identity: str
    title: str
    content: Markup

    def html(self) -> Markup:
        """The section with its heading."""
        heading = tag("h2", self.title, id=f"{self.identity}-title")
        return tag("section", heading, self.content, id=self.identity, aria_labelledby=f"{self.identity}-title")


def section(identity: str, title: str, *children: Any) -> Section:
    """A section of elements one below the other."""
    return Section(identity, title, join(children))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def page(title: str, sections: Sequence[Section]) -> str:
    """The whole page: style and script inside, nothing loaded, nothing else allowed to run.

    Args:
        title: of the page.
        sections: its parts, which the list at the top names.
    """
    style = (ASSETS / "report.css").read_text(encoding="utf-8")
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    # The browser runs this script and this style alone, by their digests: no handler in an attribute, no network.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),  # else a browser asks the server for one
        tag("style", Markup(style)),
    )
    links = [tag("li", tag("a", part.title, href=f"#{part.identity}")) for part in sections]
    body = tag(
        "body",
        tag("a", "Skip to the results", class_="skip", href="#main"),
        tag("header", tag("h1", title), tag("nav", tag("ul", *links), aria_label="Sections")),
        tag("main", *(part.html() for part in sections), id="main"),
        tag("script", Markup(script)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
