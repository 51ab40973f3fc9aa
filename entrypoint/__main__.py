"""`python -m entrypoint` is `entrypoint`."""

from entrypoint.cli.main import main

if __name__ == "__main__":
    main()
