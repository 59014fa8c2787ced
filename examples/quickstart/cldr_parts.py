"""The parts of the quickstart's sentences: names, quantities and dates in English and Vietnamese, from CLDR.

CLDR (Unicode's Common Locale Data Repository, through ``babel``) names the same things in many languages, and
``num2words`` spells whole numbers, so that both sides of every part below come from installed packages.
"""

import re
import unicodedata
from datetime import date, timedelta
from typing import Callable, Dict, List, NamedTuple, Sequence

from babel import Locale
from babel.dates import TIMEDELTA_UNITS, format_date, format_interval, format_skeleton, format_timedelta
from babel.lists import format_list
from babel.numbers import format_currency, get_territory_currencies
from babel.units import format_unit
from num2words import num2words

LANGUAGES = ("en", "vi")
# A name made of anything but words (a comma, brackets, a year) would be misread inside a list.
PLAIN_NAME = re.compile(r"[^\W\d_][^\d_,;:/()\[\]%‰°+’]*")
# "Unknown Region" and the like: places that no sentence would name.
NOT_A_PLACE = {"EZ", "QO", "UN", "XA", "XB", "ZZ"}
# The kinds of unit that CLDR names in full in both languages, and units whose names are fragments or jargon.
UNIT_KINDS = (
    "angle", "area", "digital", "duration", "electric", "energy", "frequency", "length", "mass", "power", "pressure",
    "temperature", "volume",
)  # fmt: skip
UNIT_JARGON = re.compile(
    r"-person|-jp|-imperial|-metric|-scandinavian|generic|ofhg|gasoline|acre-foot|cloth|shaku|milliinch|earth-radius"
)
# Currencies in use on a fixed day: the day of the build must not change the corpus.
CURRENCY_DAY = date(2024, 1, 1)
# The longest run of each relative time that CLDR does not round to the next unit.
RELATIVE_LIMITS = {"minute": 59, "hour": 23, "day": 6, "week": 4, "month": 11, "year": 60}


class Pair(NamedTuple):
    """The same text in both languages."""

    en: str
    vi: str


def in_both(make: Callable[[str], str]) -> Pair:
    """Makes a text once a language, in Unicode NFC with plain single spaces (CLDR also uses thin and fixed ones)."""
    return Pair(*(" ".join(unicodedata.normalize("NFC", make(language)).split()) for language in LANGUAGES))


def without_ambiguity(pairs: Sequence[Pair]) -> List[Pair]:
    """Keeps plain names only, and of those the ones whose English has one Vietnamese name; sorted, each once."""
    targets: Dict[str, set] = {}
    for pair in pairs:
        targets.setdefault(pair.en, set()).add(pair.vi)
    return sorted({pair for pair in pairs if len(targets[pair.en]) == 1 and all(map(PLAIN_NAME.fullmatch, pair))})


def names(kind: str, wanted: Callable[[str], bool]) -> List[Pair]:
    """Names of one of CLDR's tables (``territories``, ``languages``) for the codes that are wanted."""
    tables = {language: getattr(Locale(language), kind) for language in LANGUAGES}
    codes = [code for code in tables["en"] if code in tables["vi"] and wanted(code)]
    return without_ambiguity([in_both(lambda language, code=code: tables[language][code]) for code in codes])


def territories() -> List[Pair]:
    """Countries, dependencies and continents."""
    return names("territories", lambda code: code not in NOT_A_PLACE)


def languages() -> List[Pair]:
    """Languages with a two-letter code: the larger ones."""
    return names("languages", lambda code: len(code) == 2)


def units() -> List[str]:
    """CLDR's codes of the units that both languages name in plain words ("kilometers", not "km/h" or "kHz")."""
    codes = [code for code in Locale("en").unit_display_names if code.split("-")[0] in UNIT_KINDS]
    return sorted(code for code in codes if not UNIT_JARGON.search(code) and is_named(code))


def is_named(unit: str) -> bool:
    """Whether both languages write a unit out; CLDR puts a narrow space before what Vietnamese leaves in English."""
    if "\u202f" in format_unit(2, unit, "long", locale="vi"):
        return False
    pair = quantity(2, unit, False)
    plain = all(text.startswith("2 ") and PLAIN_NAME.fullmatch(text[2:]) for text in pair)
    # A capital, or a word of two letters, is a symbol ("kHz", "st"), except in degrees Celsius.
    symbol = not pair.vi.islower() or len(pair.vi) <= len("2 st")
    return plain and (not symbol or unit.startswith("temperature"))


def currencies() -> List[str]:
    """Codes of the currencies in use that Vietnamese names within a sentence ("đô la Mỹ", lower-case)."""
    regions = [code for code in Locale("en").territories if len(code) == 2]
    in_use = {code for region in regions for code in get_territory_currencies(region, CURRENCY_DAY, CURRENCY_DAY)}
    examples = [(code, amount(2, code, False)) for code in sorted(in_use)]
    return [
        code
        for code, pair in examples
        if all(text.startswith("2 ") and PLAIN_NAME.fullmatch(text[2:]) for text in pair) and pair.vi[2].islower()
    ]


def sayable(number: int) -> bool:
    """Whether num2words says this whole number as Vietnamese does.

    After a thousand or a million, Vietnamese names the empty hundreds ("không trăm"); num2words leaves them out, so
    that 1,000,100 and 1,100,000 could be told apart by luck only. Numbers with a gap of that kind are not used.
    """
    groups = [int(group) for group in f"{number:,}".split(",")]
    while len(groups) > 1 and groups[-1] == 0:
        groups.pop()
    return all(group >= 100 for group in groups[1:])


def spelled(number: int) -> Pair:
    """A whole number in words."""
    return in_both(lambda language: num2words(number, lang=language))


def counted(number: int, in_words: bool, phrase: Callable[[str], str]) -> Pair:
    """A phrase that holds ``number`` in digits, made once a language, with the number in words where asked."""
    count = spelled(number) if in_words else Pair(str(number), str(number))
    return in_both(lambda language: phrase(language).replace(str(number), getattr(count, language), 1))


def quantity(number: int, unit: str, in_words: bool) -> Pair:
    """A number with a unit: "3 kilometers" or "three kilometers"."""
    return counted(number, in_words, lambda language: format_unit(number, unit, "long", format="0", locale=language))


def amount(number: int, currency: str, in_words: bool) -> Pair:
    """A number with a currency: "25 US dollars" or "twenty-five US dollars"."""
    style = {"format_type": "name", "currency_digits": False}
    return counted(number, in_words, lambda language: format_currency(number, currency, "0", locale=language, **style))


def day(value: date, style: str) -> Pair:
    """A date: ``full`` has the weekday, ``long`` has not, anything else is one of CLDR's skeletons ("yMMMM")."""
    if style in ("full", "long"):
        return in_both(lambda language: format_date(value, style, locale=language))
    return in_both(lambda language: format_skeleton(style, value, locale=language))


def weekdays() -> List[Pair]:
    """The names of the days of the week, Monday first."""
    return [in_both(lambda language, i=i: Locale(language).days["format"]["wide"][i]) for i in range(7)]


def relative(number: int, unit: str, sign: int) -> Pair:
    """A time before or after now: "3 days ago", "in 3 days"."""
    seconds = dict((name, size) for name, size, *_ in TIMEDELTA_UNITS)[unit]
    delta = timedelta(seconds=sign * number * seconds)
    return in_both(lambda language: format_timedelta(delta, threshold=1, add_direction=True, locale=language))


def joined(items: Sequence[Pair], style: str) -> Pair:
    """A list of items: ``standard`` ends in "and", ``or`` in "or", ``unit`` has commas alone."""
    return in_both(lambda language: format_list([getattr(item, language) for item in items], style, locale=language))


def period(first: date, last: date) -> Pair:
    """From one day to another of the same month."""
    return in_both(lambda language: format_interval(first, last, "yMMMd", locale=language))


def in_region(language_name: Pair, region: Pair) -> Pair:
    """A language as spoken somewhere, in CLDR's pattern for locales: "French (Canada)"."""
    return Pair(f"{language_name.en} ({region.en})", f"{language_name.vi} ({region.vi})")
