"""`python -m testbed`: the command line, where the libraries that a site needs are installed."""

import sys

NEEDED = (
    "testbed: {} is not installed for {}: a site needs what constraints/dev.txt pins, and "
    "testbed/setup/venv.sh makes .venv with it: .venv/bin/python -m testbed"
)


def main() -> int:
    """Run the command line; 1 if a library is missing, in one sentence."""
    try:
        from testbed import command_line  # noqa: PLC0415 - it needs what may be missing
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if "." in missing:
            raise  # a part of something that is there: no library
        print(NEEDED.format(missing, sys.executable), file=sys.stderr)
        return 1
    return command_line.main()


if __name__ == "__main__":
    sys.exit(main())
