"""What this package raises."""


class DataError(Exception):
    """The job's data is not as the script wants it. One line: what was found, what was wanted, what to do.

    A plain Exception, which TensorFlow hands on as it is where it is raised in a function that AutoGraph traces.
    """
