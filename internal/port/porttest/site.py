import base64, hashlib, http.server, socketserver, sys, time
class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, form, *a): sys.stderr.write(form % a + "\n"); sys.stderr.flush()
    def answer(self, body, kind="text/plain", **headers):
        self.send_response(int(headers.pop("status", 200)))
        self.send_header("Content-Type", kind); self.send_header("Content-Length", str(len(body)))
        for n, v in headers.items(): self.send_header(n.replace("_", "-"), v)
        self.end_headers(); self.wfile.write(body)
    def do_GET(self):
        if self.path == "/hostile":
            self.send_response(200); self.send_header("Content-Length", "2")
            for n, v in [("Clear-Site-Data", '"cookies"'), ("Strict-Transport-Security", "max-age=9; includeSubDomains"), ("Access-Control-Allow-Origin", "*"),
                         ("Set-Cookie", "a=1; Domain=localhost; Path=/"), ("Set-Cookie", "arbe_session=stolen; Path=/"), ("Set-Cookie", "arbe_preview=x; Path=/"), ("Set-Cookie", "b=2")]:
                self.send_header(n, v)
            self.end_headers(); self.wfile.write(b"ok")
        elif self.path == "/hints":
            for status in ("100 Continue", "103 Early Hints"):
                self.wfile.write(("HTTP/1.1 %s\r\nSet-Cookie: a=1; Domain=localhost\r\nClear-Site-Data: \"cookies\"\r\nX-Hint: yes\r\n\r\n" % status).encode())
            self.answer(b"ok")
        elif self.path == "/redirect":
            self.answer(b"", status=302, Location="http://localhost:3000/there")
        elif self.path == "/events":
            self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.send_header("Connection", "close"); self.end_headers()
            self.wfile.write(b"data: first\n\n"); self.wfile.flush()
            self.rfile.read(1)
        elif self.path == "/socket":
            key = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            self.wfile.write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n" % key).encode()); self.wfile.flush()
            while True:
                head = self.rfile.read(2)
                if len(head) < 2 or head[0] & 15 == 8: break
                mask = self.rfile.read(4); text = bytes(c ^ mask[i % 4] for i, c in enumerate(self.rfile.read(head[1] & 127)))
                self.wfile.write(bytes([0x81, len(text)]) + text); self.wfile.flush()
            self.close_connection = True
        elif self.path.startswith("/page"):
            self.answer(open("page.html", "rb").read(), "text/html")
        else:
            self.answer((self.command + " " + self.path + "\n" + str(self.headers)).encode())
    def do_POST(self):
        size, left = 0, int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, 65536)); size += len(piece); left -= len(piece)
        self.answer(("POST %s %d" % (self.path, size)).encode())
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True; daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Site).serve_forever()
