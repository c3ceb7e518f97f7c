"""Other people's words, before they reach somebody's terminal."""


def plain(text: str) -> str:
    """The text without what would steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
