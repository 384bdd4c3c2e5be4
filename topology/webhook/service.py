#!/usr/bin/env python3
"""A notice service to try this topology with: takes notices, lists those of a reference, forgets all when it stops.

    python3 topology/webhook/service.py [PORT]        8080 where none is given
"""
import http.server
import json
import sys
import urllib.parse

NOTICES = []


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            notice = {"id": f"n{len(NOTICES)}", **{field: body[field] for field in ("shipment", "email", "client_ref")}}
        except (ValueError, KeyError, TypeError) as wrong:
            return self.answer(400, {"error": repr(wrong)})
        NOTICES.append(notice)
        self.answer(201, {"id": notice["id"]})

    def do_GET(self):
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("ref")
        self.answer(200, {"items": [n for n in NOTICES if not asked or n["client_ref"] in asked], "next": None})

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8080), Service).serve_forever()
