"""Stand in for TensorFlow's options."""


class ConfigProto:
    def __init__(self):
        self.device_count = {}
