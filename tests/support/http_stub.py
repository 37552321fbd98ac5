"""A small HTTP server that a test makes of a handler."""
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Its subclasses have do_GET and do_POST."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as in sink.py

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def serve(test, handler):
    """Serves until the end of the test, or server.shutdown() and server.server_close()."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    server.url = "http://127.0.0.1:%d" % server.server_port
    return server
