"""A part of a Markdown page that a script writes: between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""


def markers(name):
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def replace(path, name, text):
    """Puts text between the two lines of that name, whole or not at all. ValueError where the page lacks them; OSError."""
    begin, end = markers(name)
    page = path.read_text(encoding="utf-8")
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"{path}: expected one line '{begin}' and after it one line '{end}'")
    before, rest = page.split(begin)
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(f"{before}{begin}\n{text}{end}{rest.split(end)[1]}", encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
