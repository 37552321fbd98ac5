"""Daemons whose clocks a test sets while they run."""
import os
import struct

import harness


class Clocks:
    """Clocks of their own: pass `env` to the daemons that use them."""

    def __init__(self, test, name="clocks"):
        self.path = test.path(name)
        self.wall = self.boot = 0
        with open(self.path, "wb") as f:
            f.write(bytes(16))
        self.env = {"LD_PRELOAD": harness.program("clock_shift.so"), "MILLRACE_TEST_CLOCKS": self.path}
        if harness.SANITIZED:
            self.env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"

    def set(self, wall=None, boot=None):
        """Sets how many seconds the clocks are ahead of the machine's."""
        self.wall = self.wall if wall is None else wall
        self.boot = self.boot if boot is None else boot
        with open(self.path, "r+b") as f:
            f.write(struct.pack("=qq", self.wall, self.boot))
