"""What the command lines of scripts share."""
import argparse


class ArgumentParser(argparse.ArgumentParser):
    """Ends with one line, as the tools do, without the usage."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message):
        self.exit(2, f"error: {message}\n")


def positive(text):
    """A type of an argument: a whole number from 1."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"'{text}' given, expected a whole number from 1")
    return int(text)
