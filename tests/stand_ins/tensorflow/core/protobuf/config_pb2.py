"""Its options."""


class ConfigProto:
    def __init__(self):
        self.device_count = {}
