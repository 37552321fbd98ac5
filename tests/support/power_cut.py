"""Rebuilds a data directory as a power cut would have left it, from the log that support/iolog.c wrote.

A file's bytes are safe once a sync of the file succeeded that began after the write. A name is safe once its directory was synced. A rename
between two directories is atomic, and safe once both directories were synced. If a directory is lost, its files are lost, too. Unsafe
changes are lost, kept, torn, or kept without earlier changes, at random. `cut` keeps changes of names in their order, as a file system with
a journal does. `every_cut` also keeps them in other orders, as POSIX allows."""
import itertools
import os
import struct

HEAD = struct.Struct("<cQII")


class File:
    def __init__(self):
        self.changes, self.safe = [], 0


class Directory:
    pass


def records(log, end):
    """(place behind it, operation, number, path, data) of every whole record that ends at `end` or before."""
    at = 0
    while at + HEAD.size <= end:
        op, number, path_length, data_length = HEAD.unpack_from(log, at)
        at += HEAD.size + path_length + data_length
        if at > end:
            return
        path = log[at - data_length - path_length:at - data_length].decode()
        yield at, op, number, path, log[at - data_length:at]


class Disk:
    def __init__(self):
        self.live, self.safe, self.waiting, self.begun = {}, {}, [], {}
        self.changes = 0  # of names, ever
        self.unsynced = {}  # {number of a change of names: the directories that have not been synced since}
        self.made = set()  # directories; others were there before

    def apply(self, op, number, path, data):
        if op == b"W":
            self.live[path].changes.append((number, data))
        elif op == b"T":
            self.live[path].changes.append((number, None))
        elif op == b"O":
            self.rename(None, path, File())
        elif op == b"M":
            self.made.add(path)
            self.rename(None, path, Directory())
        elif op == b"R":
            self.rename(path, data.decode(), self.live[path])
        elif op == b"U":
            self.rename(path, None, None)
        elif op == b"S":
            f = self.live.get(path)
            is_file = isinstance(f, File)
            self.begun[number] = (f, len(f.changes)) if is_file else (None, self.changes)
        elif op == b"E":
            self.synced(path, *self.begun.pop(number))

    def rename(self, old, new, file):
        self.changes += 1
        change = (old, new, file, self.changes)
        self.unsynced[self.changes] = {os.path.dirname(path) for path in (old, new) if path is not None}
        self.waiting.append(change)
        self.name(self.live, change)

    @staticmethod
    def name(names, change):
        old, new, file, _ = change
        if old is not None:
            names.pop(old, None)
        if new is not None:
            names[new] = file

    def synced(self, path, file, upto):
        if file:
            file.safe = max(file.safe, upto)
            return
        directory, kept = path.rstrip("/"), []
        for change in self.waiting:
            serial = change[3]
            if serial <= upto:
                self.unsynced[serial].discard(directory)
            if self.unsynced[serial]:
                kept.append(change)
            else:
                self.name(self.safe, change)
        self.waiting = kept

    def content(self, file, random, mood):
        out = bytearray()
        for i, (at, data) in enumerate(file.changes):
            if i >= file.safe and (mood == "none" or (mood == "some" and random.random() < 0.5)):
                continue
            if data is None:
                out = out[:at] + bytes(max(0, at - len(out)))
                continue
            if i >= file.safe and mood == "some" and random.random() < 0.3:
                data = data[:random.randrange(len(data) + 1) // 512 * 512]
            out += bytes(max(0, at - len(out)))
            out[at:at + len(data)] = data
        return bytes(out)

    def names(self, kept):
        """The files that remain if the changes of names in `kept` reached the disk, besides the safe changes."""
        names = dict(self.safe)
        for change in kept:
            self.name(names, change)
        lost = tuple(path + "/" for path in self.made if path not in names)
        return {path: f for path, f in names.items() if isinstance(f, File) and not path.startswith(lost)}

    def leave(self, random, old_root, new_root, mood=None):
        """Writes the remaining bytes of the files below old_root to new_root. With mood "none", only safe changes remain."""
        kept = 0 if mood == "none" else random.randrange(len(self.waiting) + 1)
        mood = mood or random.choice(["none", "some", "all"])
        names = self.names(self.waiting[:kept])
        write_files({path: self.content(file, random, mood) for path, file in names.items()}, old_root, new_root)

    def subsets(self, random):
        """Subsets of the unsafe changes of names: all subsets, or if there are many changes: none, all, each alone, all but one, and some
        more."""
        n = len(self.waiting)
        if n <= 4:
            keeps = set(itertools.product((False, True), repeat=n))
        else:
            keeps = {(bool(one),) * n for one in (0, 1)}
            keeps |= {tuple((i == k) == one for i in range(n)) for k in range(n) for one in (False, True)}
            keeps |= {tuple(random.random() < 0.5 for _ in range(n)) for _ in range(4)}
        return [[c for c, keep in zip(self.waiting, kept) if keep] for kept in sorted(keeps)]


def write_files(files, old_root, new_root):
    for path, text in files.items():
        to = os.path.join(new_root, os.path.relpath(path, old_root))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with open(to, "wb") as f:
            f.write(text)


def cut(log, end, random, old_root, new_root, mood=None):
    disk = Disk()
    for _, op, number, path, data in records(log, end):
        disk.apply(op, number, path, data)
    disk.leave(random, old_root, new_root, mood)


def every_cut(log, random):
    """Yields (description, {path: bytes}) for a cut after each operation of the log: every choice of names (see subsets), each with none,
    some and all of the unsafe bytes."""
    disk = Disk()
    for at, op, number, path, data in records(log, len(log)):
        disk.apply(op, number, path, data)
        if op == b"S":
            continue
        for names in map(disk.names, disk.subsets(random)):
            unsafe = any(f.safe < len(f.changes) for f in names.values())
            for mood in ("none", "some", "all") if unsafe else ("all",):
                what = "behind %s %s at %d, bytes: %s, names: %s" % (
                    op.decode(), os.path.basename(path), at, mood, sorted(map(os.path.basename, names)))
                yield what, {name: disk.content(f, random, mood) for name, f in names.items()}
