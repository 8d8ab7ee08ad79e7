"""A stand-in for a device that computes while the host goes on: a clock of the exporter's and of validate/pytorch/measure.py."""


class Apart:
    """A device that does what a host issues: each kernel takes the host one time and the device another. It also is the host's clock."""

    runs_apart = True

    def __init__(self, host, device):
        self.host_each, self.device_each = host, device
        self.now, self.free = 0.0, 0.0  # of the host; when the device is done with all that is issued

    def launch(self, kernels):
        for _ in range(kernels):
            self.now += self.host_each
            self.free = max(self.free, self.now) + self.device_each

    def mark(self):
        self.free = max(self.free, self.now)
        return self.free

    def keep_busy(self, seconds):
        self.free = max(self.free, self.now) + seconds

    def is_over(self, mark):
        return mark <= self.now

    def settle(self):
        self.now = max(self.now, self.free)

    def seconds(self, start, finish):
        return finish - start

    def perf_counter(self):
        return self.now
