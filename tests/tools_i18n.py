"""The translation catalogues: ``python -m tests.tools_i18n`` extracts, merges and compiles; ``--check`` only looks.

Every ``msg("…")`` under agent/ and every ``_("…")`` in a template goes to reports/templates/locale/<lang>/LC_MESSAGES/
accept.po, where a person translates it; accept.mo beside it is compiled from that and committed. Exit 1 when a
translation is missing or, with ``--check``, when the files are not what extracting now would give.
"""

from __future__ import annotations

import contextlib
import io
import string
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from babel.messages import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parents[1]
LOCALES = ROOT / "reports" / "templates" / "locale"
LANGUAGES = ("zh",)
DOMAIN = "accept"
METHODS = [("agent/**.py", "python"), ("reports/templates/**.j2", "jinja2")]
OPTIONS = {"reports/templates/**.j2": {"encoding": "utf-8", "trim_blocks": "true", "lstrip_blocks": "true"}}
KEYWORDS = {"msg": None, "_": None, "gettext": None}
# No clock in the files: they change only when a sentence does.
_DATE = datetime(2026, 1, 1, tzinfo=timezone.utc)


def po_path(language: str) -> Path:
    return LOCALES / language / "LC_MESSAGES" / f"{DOMAIN}.po"


def mo_path(language: str) -> Path:
    return po_path(language).with_suffix(".mo")


def extracted() -> Iterator[str]:
    """All sentences of the product, each once per place."""
    # babel warns of every f-string among the arguments; a test looks for those that are the sentence itself.
    with contextlib.redirect_stderr(io.StringIO()):
        found = list(extract_from_dir(ROOT, METHODS, OPTIONS, keywords=KEYWORDS, directory_filter=_ours))
    for _file, _line, message, _comments, _context in found:
        if isinstance(message, str) and message:
            yield message


def _ours(folder: str) -> bool:
    parts = Path(folder).resolve().relative_to(ROOT).parts
    return not parts or (parts[0] in ("agent", "reports") and "__pycache__" not in parts)


def read(language: str) -> Catalog:
    """The catalogue as committed; an empty one where there is none."""
    if not po_path(language).exists():
        return Catalog(locale=language, domain=DOMAIN)
    with po_path(language).open("rb") as source:
        return read_po(source, locale=language, domain=DOMAIN)


def read_compiled(language: str) -> Catalog:
    """What gettext really uses."""
    with mo_path(language).open("rb") as source:
        return read_mo(source)


def merged(language: str) -> Catalog:
    """A catalogue of what the sources hold now, with the translations known so far."""
    known = {str(m.id): m.string for m in read(language) if m.id}
    catalog = Catalog(
        locale=language,
        domain=DOMAIN,
        project="accept",
        version="1",
        header_comment="# Translations of accept.",
        copyright_holder="",
        msgid_bugs_address="",
        last_translator="",
        language_team="",
        creation_date=_DATE,
        revision_date=_DATE,
        fuzzy=False,
    )
    for message in sorted(set(extracted())):
        catalog.add(message, string=known.get(message) or "")
    return catalog


def missing(catalog: Catalog) -> list[str]:
    """Sentences without a translation."""
    return [str(m.id) for m in catalog if m.id and not m.string]


def placeholders(template: str) -> frozenset[str]:
    """The named arguments of a sentence."""
    return frozenset(field for _, field, _, _ in string.Formatter().parse(template) if field is not None)


def po_bytes(catalog: Catalog) -> bytes:
    out = io.BytesIO()
    write_po(out, catalog, width=0, no_location=True, omit_header=False)
    return out.getvalue()


def mo_bytes(catalog: Catalog) -> bytes:
    out = io.BytesIO()
    write_mo(out, catalog)
    return out.getvalue()


def main(argv: list[str]) -> int:
    """Write the catalogues, or with ``--check`` say whether they are up to date."""
    status = 0
    for language in LANGUAGES:
        catalog = merged(language)
        po, mo = po_bytes(catalog), mo_bytes(catalog)
        if "--check" not in argv:
            po_path(language).parent.mkdir(parents=True, exist_ok=True)
            po_path(language).write_bytes(po)
            mo_path(language).write_bytes(mo)
        elif po_path(language).read_bytes() != po or mo_path(language).read_bytes() != mo:
            print(f"{language}: not up to date; run python -m tests.tools_i18n")
            status = 1
        absent = missing(catalog)
        for message in absent:
            print(f"{language}: not translated: {message!r}")
        print(f"{language}: {len(catalog) - len(absent)} of {len(catalog)} sentences translated")
        status = 1 if absent else status
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
