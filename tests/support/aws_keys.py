"""Signatures of AWS, computed by the text of its documentation."""
import hashlib
import hmac
import re


def signature(secret, region, headers, body, service="sns"):
    """Signature Version 4 of a POST with the headers that Authorization names, by the text of AWS's documentation."""
    scope, names = re.search(r"Credential=[^/]+/(\S+), SignedHeaders=(\S+),", headers["authorization"]).groups()
    canonical = "\n".join(["POST", "/", "", *("%s:%s" % (name, headers[name]) for name in names.split(";")), "", names, hashlib.sha256(body).hexdigest()])
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (headers["x-amz-date"][:8], region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return names, hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
