"""A file system of a few MiB under a test's directory, to be filled and emptied. Without the right to mount, the test is skipped."""
import os
import shutil
import subprocess


class SmallDisk:
    def __init__(self, test, size, name="disk"):
        self.directory = test.path(name)
        os.mkdir(self.directory)
        if self.mount("size=" + size, "tmpfs").returncode:
            test.skipTest("no right to mount a tmpfs")
        test.addCleanup(subprocess.run, ["umount", "-l", self.directory], check=True)  # daemons may still be there

    @property
    def free(self):
        st = os.statvfs(self.directory)
        return st.f_bavail * st.f_frsize

    def mount(self, options, *device):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, *device, self.directory], capture_output=True)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def take(self, size):
        """Takes so many bytes of the disk for another file, without writing them."""
        with open(self.path("other"), "ab") as other:
            os.posix_fallocate(other.fileno(), os.fstat(other.fileno()).st_size, size)

    def take_the_rest(self):
        for size in (1 << 24, 1 << 16, 4096):
            try:
                while True:
                    self.take(size)
            except OSError:
                pass

    def leave(self, size):
        """Frees so many of the taken bytes."""
        os.truncate(self.path("other"), os.stat(self.path("other")).st_size - size)

    def give_back(self):
        """Frees the bytes that take and take_the_rest took."""
        os.unlink(self.path("other"))

    def grow(self, size):
        self.mount("remount,size=" + size).check_returncode()


class Ext4Disk(SmallDisk):
    """Unlike tmpfs, ext4 keeps the blocks of an allocation that finds too few."""
    def __init__(self, test, size, name="disk"):
        self.image = test.path(name + ".ext4")
        with open(self.image, "wb") as image:
            image.truncate(size)
        if not shutil.which("mkfs.ext4"):
            test.skipTest("mkfs.ext4 is not installed")
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", self.image], check=True)
        super().__init__(test, "", name)

    def mount(self, options, *device):
        return subprocess.run(["mount", "-o", "loop", self.image, self.directory], capture_output=True)
