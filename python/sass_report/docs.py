"""The table in docs/sass.md, between two marker lines."""
import pathlib

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/sass.md"
BEGIN, END = "<!-- scripts/sass-report: begin -->\n", "<!-- scripts/sass-report: end -->\n"


def split(page=PAGE):
    """The text before, between and after the markers. Raises ValueError where they are not."""
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{page.name} has no place for the table, expected the lines {BEGIN.strip()} and {END.strip()}")
    before, rest = text.split(BEGIN)
    between, after = rest.split(END)
    return before, between, after


def update(text, page=PAGE):
    before, _, after = split(page)
    page.write_text(before + BEGIN + text + END + after)


def difference(text, page=PAGE):
    """One line that names the first row that differs; None: the page has this text."""
    has, expected = split(page)[1].splitlines(), text.splitlines()
    for number in range(max(len(has), len(expected))):
        one = has[number] if number < len(has) else "nothing"
        other = expected[number] if number < len(expected) else "nothing"
        if one != other:
            return f"{page.name} has {one!r}, expected {other!r} (scripts/sass-report --shipped --update-docs writes it)"
    return None
