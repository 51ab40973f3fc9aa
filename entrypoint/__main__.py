"""Run the command `entrypoint` for `python -m entrypoint`."""

from entrypoint.cli.main import main

if __name__ == "__main__":
    main()
