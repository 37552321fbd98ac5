"""Rebuilds a data directory as a power cut would have left it, from the log that support/iolog.c wrote.

A file's bytes are safe once a sync of it succeeded that began after they were written; a name once its directory was
synced. What is not safe is lost, kept, torn or kept without what came before it, as the dice say; names are kept in
their order, as a file system with a journal keeps them."""
import os
import struct

HEAD = struct.Struct("<cQII")


class File:
    def __init__(self):
        self.changes, self.safe = [], 0


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

    def apply(self, op, number, path, data):
        if op == b"W":
            self.live[path].changes.append((number, data))
        elif op == b"T":
            self.live[path].changes.append((number, None))
        elif op == b"O":
            self.rename(None, path, File())
        elif op == b"R":
            self.rename(path, data.decode(), self.live[path])
        elif op == b"U":
            self.rename(path, None, None)
        elif op == b"S":
            f = self.live.get(path)
            self.begun[number] = (f, len(f.changes)) if f else (None, len(self.waiting) and self.waiting[-1])
        elif op == b"E":
            self.synced(path, *self.begun.pop(number))

    def rename(self, old, new, file):
        change = (old, new, file)
        self.waiting.append(change)
        self.name(self.live, change)

    @staticmethod
    def name(names, change):
        old, new, file = change
        if old is not None:
            names.pop(old, None)
        if new is not None:
            names[new] = file

    def synced(self, path, file, upto):
        if file:
            file.safe = max(file.safe, upto)
            return
        kept, done = [], not upto or upto not in self.waiting
        for change in self.waiting:
            mine = os.path.dirname(change[0] or change[1]) == path
            if mine and not done:
                self.name(self.safe, change)
            else:
                kept.append(change)
            done = done or change is upto
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

    def leave(self, random, old_root, new_root):
        """Writes what is left of the files below old_root to new_root."""
        mood = random.choice(["none", "some", "all"])
        names = dict(self.safe)
        for change in self.waiting[:random.randrange(len(self.waiting) + 1)]:
            self.name(names, change)
        for path, file in names.items():
            to = os.path.join(new_root, os.path.relpath(path, old_root))
            os.makedirs(os.path.dirname(to), exist_ok=True)
            with open(to, "wb") as f:
                f.write(self.content(file, random, mood))


def cut(log, end, random, old_root, new_root):
    disk = Disk()
    for _, op, number, path, data in records(log, end):
        disk.apply(op, number, path, data)
    disk.leave(random, old_root, new_root)
