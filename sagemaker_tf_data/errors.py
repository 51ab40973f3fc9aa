"""Define the exception that this package raises."""


class DataError(Exception):
    """Report in one line how the job's data differ from the script: what was found, what was expected, what to do.

    A direct subclass of Exception: TensorFlow passes it on unchanged from a function that AutoGraph traces.
    """
