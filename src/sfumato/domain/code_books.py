# SPDX-License-Identifier: Apache-2.0
"""Lists of values from public knowledge: `public_list` has common ones, `code_book` reads a file.

Both return a `CodeBook`: the values of a category, and levels of groups that each of them is in. A
list is named, a file is the steward's: both are public, and only what they say enters a domain, not
the name or the path.

    iso-countries       ISO 3166-1 codes of two letters, with the levels alpha3 and name
    iso-countries-alpha3, iso-countries-names    the same by codes of three letters, by name
    us-states           USPS codes of the 50 states and DC, with the levels name and region
    us-states-names     the same by name
    weekdays, months    in English, with the levels weekend and quarter
    five-year-ages      0-4, 5-9, ..., 80-84, 85+

Sources: ISO 3166-1 (codes; common English names), USPS Publication 28 Appendix B (states), U.S.
Census Bureau (four regions).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfumato.domain.domain_limits import LIMITS
from sfumato.errors import SchemaError
from sfumato.text import did_you_mean, listing, shown

__all__ = [
    "PUBLIC_LISTS",
    "CodeBook",
    "code_book",
    "public_list",
]


@dataclass(frozen=True, slots=True)
class CodeBook:
    """The values of a category, and its levels: for each its name and the group of every value."""

    values: tuple[str | int, ...]
    levels: Mapping[str, tuple[str, ...]]

    def tables(self) -> dict[str, dict[str, object]]:
        """The levels as tables of a schema file: members by group, in order of appearance."""
        tables: dict[str, dict[str, object]] = {}
        for name, groups in self.levels.items():
            table: dict[str, list[str | int]] = {}
            for value, group in zip(self.values, groups, strict=True):
                if group:
                    table.setdefault(group, []).append(value)
            # A group of two whole numbers would be read as a pair of bounds.
            tables[name] = {group: list(map(str, members)) for group, members in table.items()}
        return tables


def public_list(name: str) -> CodeBook:
    """The list of this name.

    >>> public_list("weekdays").values[:2], public_list("weekdays").levels["weekend"][-1]
    (('Monday', 'Tuesday'), 'weekend')
    """
    if name not in PUBLIC_LISTS:
        raise SchemaError(
            f"there is no list {shown(name)}; the lists are {listing(list(PUBLIC_LISTS))}"
            f"{did_you_mean(name, PUBLIC_LISTS)}"
        )
    return PUBLIC_LISTS[name]()


def code_book(
    path: Path,
    value_column: str | None = None,
    level_columns: Sequence[str] = (),
    *,
    are_whole: bool = False,
) -> CodeBook:
    """The values and levels that columns of a public CSV or Parquet file list.

    Args:
        path: The file, in UTF-8 with a first line of names if it is CSV.
        value_column: The column of the values; the first one unless named.
        level_columns: Columns of groups, each a level of its own name; an empty entry is in none.
        are_whole: Whether the values of a CSV file are whole numbers, and no texts.

    Raises:
        SchemaError: The file cannot be read, lacks a column, or lists a value twice.
    """
    names, rows = _read(path)
    value_column = names[0] if value_column is None else value_column
    for name in (value_column, *level_columns):
        if name not in names:
            raise SchemaError(
                f"{shown(path.name)} has no column {shown(name)}; its columns are {listing(names)}"
                f"{did_you_mean(name, names)}"
            )
    if len(rows) > LIMITS.values_grouped:
        raise SchemaError(
            f"{shown(path.name)} lists more than {LIMITS.values_grouped:,} values; list fewer"
        )
    place = {name: i for i, name in enumerate(names)}
    values = [_value(row[place[value_column]], are_whole, path) for row in rows]
    seen: set[str | int] = set()
    for value in values:
        if value in seen:
            raise SchemaError(
                f"{shown(path.name)} lists the value {shown(value)} twice in "
                f"{shown(value_column)}; a code book has each once"
            )
        seen.add(value)
    groups = {
        name: tuple("" if row[place[name]] is None else str(row[place[name]]) for row in rows)
        for name in level_columns
    }
    return CodeBook(tuple(values), groups)


def _value(entry: object, are_whole: bool, path: Path) -> str | int:
    is_whole = isinstance(entry, int) and not isinstance(entry, bool)
    if is_whole and isinstance(entry, int):
        return entry
    if not isinstance(entry, str) or not entry:
        raise SchemaError(
            f"{shown(path.name)} lists {shown(entry)}, which is no value; values are texts or "
            "whole numbers, none of them empty"
        )
    if not are_whole:
        return entry
    try:
        return int(entry)
    except ValueError:
        raise SchemaError(
            f"{shown(path.name)} lists {shown(entry)}, which is no whole number; leave value_type "
            "out for texts"
        ) from None


def _read(path: Path) -> tuple[list[str], list[list[object]]]:
    """The names of the columns and the rows of a public file."""
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
        except Exception as error:
            raise _unreadable(path, error) from None
        columns = [table[name].to_pylist() for name in table.column_names]
        return list(table.column_names), [list(row) for row in zip(*columns, strict=True)]
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [row for row in csv.reader(file, strict=True) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from None
    if not lines:
        raise SchemaError(f"{shown(path.name)} is empty; it needs a first line of names")
    names, rows = [name.strip() for name in lines[0]], lines[1:]
    uneven = next((i for i, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if uneven is not None:
        raise SchemaError(
            f"{shown(path.name)}, row {uneven}: as many values as names are needed, {len(names)}"
        )
    return names, [[entry.strip() for entry in row] for row in rows]


def _unreadable(path: Path, error: Exception) -> SchemaError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged"
    return SchemaError(
        f"the list of values in {shown(str(path), 300)} cannot be read ({why}); it is a CSV file "
        "in UTF-8 with a first line of names, or a Parquet file"
    )


# Lists


def _countries(by: int) -> CodeBook:
    rows = [entry.strip().split(" ", 2) for entry in _COUNTRIES.replace("\n", " ").split(";")]
    codes, alpha3, names = (tuple(row[i] for row in rows) for i in range(3))
    if by == 0:
        return CodeBook(codes, {"alpha3": alpha3, "name": names})
    return CodeBook(alpha3, {"name": names}) if by == 1 else CodeBook(names, {"code": codes})


def _states(by_name: bool) -> CodeBook:
    rows = [
        (*entry.strip().split(" ", 1), region)
        for region, entries in _STATES.items()
        for entry in entries.replace("\n", " ").split(";")
    ]
    rows.sort(key=lambda row: row[1])
    codes, names, regions = (tuple(row[i] for row in rows) for i in range(3))
    if by_name:
        return CodeBook(names, {"code": codes, "region": regions})
    return CodeBook(codes, {"name": names, "region": regions})


def _weekdays() -> CodeBook:
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return CodeBook(days, {"weekend": ("weekday",) * 5 + ("weekend",) * 2})


def _months() -> CodeBook:
    half = ("January", "February", "March", "April", "May", "June")
    rest = ("July", "August", "September", "October", "November", "December")
    return CodeBook((*half, *rest), {"quarter": tuple(f"Q{i // 3 + 1}" for i in range(12))})


def _ages() -> CodeBook:
    return CodeBook((*(f"{low}-{low + 4}" for low in range(0, 85, 5)), "85+"), {})


PUBLIC_LISTS: Final[Mapping[str, Callable[[], CodeBook]]] = {
    "iso-countries": lambda: _countries(0),
    "iso-countries-alpha3": lambda: _countries(1),
    "iso-countries-names": lambda: _countries(2),
    "us-states": lambda: _states(False),
    "us-states-names": lambda: _states(True),
    "weekdays": _weekdays,
    "months": _months,
    "five-year-ages": _ages,
}
"""The lists that ``list = "..."`` may name."""

_STATES: Final = {
    "Northeast": """
CT Connecticut; ME Maine; MA Massachusetts; NH New Hampshire; RI Rhode Island; VT Vermont;
NJ New Jersey; NY New York; PA Pennsylvania""",
    "Midwest": """
IL Illinois; IN Indiana; MI Michigan; OH Ohio; WI Wisconsin; IA Iowa; KS Kansas; MN
Minnesota; MO Missouri; NE Nebraska; ND North Dakota; SD South Dakota""",
    "South": """
DE Delaware; DC District of Columbia; FL Florida; GA Georgia; MD Maryland; NC North
Carolina; SC South Carolina; VA Virginia; WV West Virginia; AL Alabama; KY Kentucky; MS
Mississippi; TN Tennessee; AR Arkansas; LA Louisiana; OK Oklahoma; TX Texas""",
    "West": """
AZ Arizona; CO Colorado; ID Idaho; MT Montana; NV Nevada; NM New Mexico; UT Utah; WY
Wyoming; AK Alaska; CA California; HI Hawaii; OR Oregon; WA Washington""",
}

_COUNTRIES: Final = """
AD AND Andorra; AE ARE United Arab Emirates; AF AFG Afghanistan; AG ATG Antigua and Barbuda;
AI AIA Anguilla; AL ALB Albania; AM ARM Armenia; AO AGO Angola; AQ ATA Antarctica;
AR ARG Argentina; AS ASM American Samoa; AT AUT Austria; AU AUS Australia; AW ABW Aruba;
AX ALA Åland Islands; AZ AZE Azerbaijan; BA BIH Bosnia and Herzegovina; BB BRB Barbados;
BD BGD Bangladesh; BE BEL Belgium; BF BFA Burkina Faso; BG BGR Bulgaria; BH BHR Bahrain;
BI BDI Burundi; BJ BEN Benin; BL BLM Saint Barthélemy; BM BMU Bermuda; BN BRN Brunei;
BO BOL Bolivia; BQ BES Bonaire, Sint Eustatius and Saba; BR BRA Brazil; BS BHS Bahamas;
BT BTN Bhutan; BV BVT Bouvet Island; BW BWA Botswana; BY BLR Belarus; BZ BLZ Belize;
CA CAN Canada; CC CCK Cocos (Keeling) Islands; CD COD Democratic Republic of the Congo;
CF CAF Central African Republic; CG COG Congo; CH CHE Switzerland; CI CIV Côte d'Ivoire;
CK COK Cook Islands; CL CHL Chile; CM CMR Cameroon; CN CHN China; CO COL Colombia;
CR CRI Costa Rica; CU CUB Cuba; CV CPV Cabo Verde; CW CUW Curaçao; CX CXR Christmas Island;
CY CYP Cyprus; CZ CZE Czechia; DE DEU Germany; DJ DJI Djibouti; DK DNK Denmark; DM DMA Dominica;
DO DOM Dominican Republic; DZ DZA Algeria; EC ECU Ecuador; EE EST Estonia; EG EGY Egypt;
EH ESH Western Sahara; ER ERI Eritrea; ES ESP Spain; ET ETH Ethiopia; FI FIN Finland;
FJ FJI Fiji; FK FLK Falkland Islands; FM FSM Micronesia; FO FRO Faroe Islands; FR FRA France;
GA GAB Gabon; GB GBR United Kingdom; GD GRD Grenada; GE GEO Georgia; GF GUF French Guiana;
GG GGY Guernsey; GH GHA Ghana; GI GIB Gibraltar; GL GRL Greenland; GM GMB Gambia; GN GIN Guinea;
GP GLP Guadeloupe; GQ GNQ Equatorial Guinea; GR GRC Greece;
GS SGS South Georgia and the South Sandwich Islands; GT GTM Guatemala; GU GUM Guam;
GW GNB Guinea-Bissau; GY GUY Guyana; HK HKG Hong Kong; HM HMD Heard Island and McDonald Islands;
HN HND Honduras; HR HRV Croatia; HT HTI Haiti; HU HUN Hungary; ID IDN Indonesia; IE IRL Ireland;
IL ISR Israel; IM IMN Isle of Man; IN IND India; IO IOT British Indian Ocean Territory;
IQ IRQ Iraq; IR IRN Iran; IS ISL Iceland; IT ITA Italy; JE JEY Jersey; JM JAM Jamaica;
JO JOR Jordan; JP JPN Japan; KE KEN Kenya; KG KGZ Kyrgyzstan; KH KHM Cambodia; KI KIR Kiribati;
KM COM Comoros; KN KNA Saint Kitts and Nevis; KP PRK North Korea; KR KOR South Korea;
KW KWT Kuwait; KY CYM Cayman Islands; KZ KAZ Kazakhstan; LA LAO Laos; LB LBN Lebanon;
LC LCA Saint Lucia; LI LIE Liechtenstein; LK LKA Sri Lanka; LR LBR Liberia; LS LSO Lesotho;
LT LTU Lithuania; LU LUX Luxembourg; LV LVA Latvia; LY LBY Libya; MA MAR Morocco; MC MCO Monaco;
MD MDA Moldova; ME MNE Montenegro; MF MAF Saint Martin (French part); MG MDG Madagascar;
MH MHL Marshall Islands; MK MKD North Macedonia; ML MLI Mali; MM MMR Myanmar; MN MNG Mongolia;
MO MAC Macao; MP MNP Northern Mariana Islands; MQ MTQ Martinique; MR MRT Mauritania;
MS MSR Montserrat; MT MLT Malta; MU MUS Mauritius; MV MDV Maldives; MW MWI Malawi;
MX MEX Mexico; MY MYS Malaysia; MZ MOZ Mozambique; NA NAM Namibia; NC NCL New Caledonia;
NE NER Niger; NF NFK Norfolk Island; NG NGA Nigeria; NI NIC Nicaragua; NL NLD Netherlands;
NO NOR Norway; NP NPL Nepal; NR NRU Nauru; NU NIU Niue; NZ NZL New Zealand; OM OMN Oman;
PA PAN Panama; PE PER Peru; PF PYF French Polynesia; PG PNG Papua New Guinea;
PH PHL Philippines; PK PAK Pakistan; PL POL Poland; PM SPM Saint Pierre and Miquelon;
PN PCN Pitcairn; PR PRI Puerto Rico; PS PSE Palestine; PT PRT Portugal; PW PLW Palau;
PY PRY Paraguay; QA QAT Qatar; RE REU Réunion; RO ROU Romania; RS SRB Serbia; RU RUS Russia;
RW RWA Rwanda; SA SAU Saudi Arabia; SB SLB Solomon Islands; SC SYC Seychelles; SD SDN Sudan;
SE SWE Sweden; SG SGP Singapore; SH SHN Saint Helena; SI SVN Slovenia;
SJ SJM Svalbard and Jan Mayen; SK SVK Slovakia; SL SLE Sierra Leone; SM SMR San Marino;
SN SEN Senegal; SO SOM Somalia; SR SUR Suriname; SS SSD South Sudan;
ST STP Sao Tome and Principe; SV SLV El Salvador; SX SXM Sint Maarten (Dutch part);
SY SYR Syria; SZ SWZ Eswatini; TC TCA Turks and Caicos Islands; TD TCD Chad;
TF ATF French Southern Territories; TG TGO Togo; TH THA Thailand; TJ TJK Tajikistan;
TK TKL Tokelau; TL TLS Timor-Leste; TM TKM Turkmenistan; TN TUN Tunisia; TO TON Tonga;
TR TUR Türkiye; TT TTO Trinidad and Tobago; TV TUV Tuvalu; TW TWN Taiwan; TZ TZA Tanzania;
UA UKR Ukraine; UG UGA Uganda; UM UMI United States Minor Outlying Islands;
US USA United States; UY URY Uruguay; UZ UZB Uzbekistan; VA VAT Holy See;
VC VCT Saint Vincent and the Grenadines; VE VEN Venezuela; VG VGB British Virgin Islands;
VI VIR U.S. Virgin Islands; VN VNM Vietnam; VU VUT Vanuatu; WF WLF Wallis and Futuna;
WS WSM Samoa; YE YEM Yemen; YT MYT Mayotte; ZA ZAF South Africa; ZM ZMB Zambia; ZW ZWE Zimbabwe"""
