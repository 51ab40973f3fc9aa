"""Define the exception that this package raises."""


class DataError(Exception):
    """The job's data differ from what the script expects. One line: what was found, what was expected, what to do.

    A direct subclass of Exception: TensorFlow passes it on unchanged from a function that AutoGraph traces.
    """
