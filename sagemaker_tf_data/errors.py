"""Define the exception that this package raises."""


class DataError(Exception):
    """Report in one line that the data differ from the script's expectation: what was found, and what to do.

    A direct subclass of Exception: TensorFlow passes it on unchanged from a function that AutoGraph traces.
    """
