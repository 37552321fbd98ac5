"""XXH3 of 64 bits by the library that Debian has, in the hex digits that manifests and archives have it in."""
import ctypes
import ctypes.util

library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
library.XXH3_64bits.restype = ctypes.c_uint64
library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
library.XXH3_64bits_withSeed.restype = ctypes.c_uint64
library.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def xxh3(data):
    return "%016x" % library.XXH3_64bits(data, len(data))


def seeded(data, seed):
    return library.XXH3_64bits_withSeed(data, len(data), seed)
