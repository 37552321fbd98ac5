"""Keys and credentials of NATS, made with openssl: ed25519 keys in NATS's text form, and the JWTs that they sign."""
import base64
import binascii
import json
import subprocess
import time

SEED, USER, ACCOUNT, OPERATOR = 18 << 3, 20 << 3, 0, 14 << 3
LIMITS = {**dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1), "wildcards": True}
JETSTREAM = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)  # not for the system account


def openssl(*args, data=b""):
    return subprocess.run(["openssl", *args], input=data, capture_output=True, check=True).stdout


def encode(raw):
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Key:
    """A key of a user, an account or an operator. `path` is a file for the private key."""

    def __init__(self, test, kind, name):
        self.path = test.path(name + ".pem")
        openssl("genpkey", "-algorithm", "ed25519", "-out", self.path)
        private = openssl("pkey", "-in", self.path, "-outform", "DER")[-32:]
        public = openssl("pkey", "-in", self.path, "-pubout", "-outform", "DER")[-32:]
        self.seed = encode(bytes([SEED | kind >> 5, (kind & 31) << 3]) + private)
        self.public = encode(bytes([kind]) + public)

    def jwt(self, test, subject, name, **nats):
        """A claim about `subject`, signed by this key."""
        claim = {"jti": name, "iat": int(time.time()), "iss": self.public, "name": name, "sub": subject, "nats": {"version": 2, **nats}}
        text = ".".join(base64url(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claim))
        signed = openssl("pkeyutl", "-sign", "-rawin", "-inkey", self.path, "-in", test.write("claim", text))
        return text + "." + base64url(signed)


def operator_mode(test):
    """(the servers' configuration, the content of a user's credentials file)"""
    operator, system, account, user = (Key(test, kind, name) for kind, name in (
        (OPERATOR, "operator"), (ACCOUNT, "system"), (ACCOUNT, "account"), (USER, "user")))
    jwts = {key.public: operator.jwt(test, key.public, name, type="account", limits=limits) for key, name, limits in (
        (system, "SYS", LIMITS), (account, "A", {**LIMITS, **JETSTREAM}))}
    config = "operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n%s}\n" % (
        operator.jwt(test, operator.public, "O", type="operator", system_account=system.public), system.public,
        "".join("%s: %s\n" % item for item in jwts.items()))
    token = account.jwt(test, user.public, "U", type="user", subs=-1, data=-1, payload=-1)
    return config, ("-----BEGIN NATS USER JWT-----\n%s\n------END NATS USER JWT------\n\n"
                    "-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n") % (token, user.seed)
