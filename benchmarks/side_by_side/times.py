"""Convert docker's times."""

from datetime import datetime


def seconds(engine_time: str) -> float:
    """Return a time of docker's, to the nanosecond and in UTC, as seconds since 1970."""
    whole, _, fraction = engine_time.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
