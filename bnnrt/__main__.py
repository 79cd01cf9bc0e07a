"""``python -m bnnrt`` is the command ``bnnrt``."""

from bnnrt.cli import main

if __name__ == "__main__":
    main()
