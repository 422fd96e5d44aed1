"""A report's data as one HTML page: the template, with style, scripts and data inside.

Its content security policy says that it loads nothing and runs only our script, and browsers
enforce that, whatever a method's name or a note may contain.
"""

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from hokical.report.parts import facts_html, notes_html, table_html, tiles_html

#: In the order of their dependencies.
_SCRIPTS = ("svg.js", "reliability.js", "risk.js", "explorer.js")


def render_page(data: dict[str, Any]) -> str:
    """The whole page, as text."""
    style, scripts = _asset("style.css"), "\n".join(_asset(name) for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{scripts}}})();\n'
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    return Template(_asset("template.html")).substitute(
        policy=escape(policy),
        style=style,
        script=script,
        data=json_for_script(data),
        title=escape(data["title"]),
        headline=escape(data["headline"]),
        lead=escape(_lead(data)),
        tiles=tiles_html(data),
        table=table_html(data),
        notes=notes_html(data),
        method_options=_options({m["name"]: m["label"] for m in data["methods"]}, data["chosen"]),
        bin_options=_options({count: count for count in data["bin_counts"]}, 15),
        facts=facts_html(data),
        certainty=f"{1.0 - data['options']['delta']:.0%}",
    )


def json_for_script(data: Any) -> str:
    """JSON that an HTML parser cannot mistake for markup inside a script element.

    >>> json_for_script("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: no U+2028 either
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return (files("hokical.report") / name).read_text(encoding="utf-8")


def _lead(data: dict[str, Any]) -> str:
    test, validation = data["provenance"]["test"], data["provenance"]["validation"]
    n_methods = len(data["methods"])
    compared = "One method" if n_methods == 1 else f"{n_methods} methods"
    fitted = f"{compared}, fitted on {validation['n_rows']:,} validation examples"
    if validation["sha256"] == test["sha256"]:
        return (
            f"{fitted} and measured on the same ones, {test['n_classes']} classes. Everything here "
            "looks better than it is: measure on examples that nothing was fitted on."
        )
    return f"{fitted} and measured on {test['n_rows']:,} other ones, {test['n_classes']} classes."


def _options(texts: dict[Any, Any], chosen: Any) -> str:
    """Option elements of a select, from values to texts."""
    return "\n".join(
        f'<option value="{escape(str(value))}"{" selected" if value == chosen else ""}>'
        f"{escape(str(text))}</option>"
        for value, text in texts.items()
    )
