"""Let `python -m cachekit` be the command line."""

from cachekit.cli import main

if __name__ == "__main__":
    main()
