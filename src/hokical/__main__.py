"""`python -m hokical`: the same as the command `hokical`."""

from hokical.cli import main

if __name__ == "__main__":
    main()
