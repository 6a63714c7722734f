"""Runs a real time-stamping authority for tests: OpenSSL's, behind a small server on the loopback address."""

from __future__ import annotations

import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
CN = {common_name}
[root]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign
[stamper]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
[tsa]
default_tsa = here
[here]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha512
accuracy = secs:1
ess_cert_id_alg = sha256
"""


def next_second() -> None:
    """Wait until a token tells a later time: tokens tell whole seconds."""
    time.sleep(1.02 - time.time() % 1)


class Authority:
    """Stand for one authority: its root certificate's file and its address while it runs."""

    def __init__(self, folder: Path, name: str = "Test authority", days: int = 2) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.root = folder / "root.pem"
        self.url = ""
        (folder / "serial").write_text("01\n")
        self._config("Root of " + name)
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "root.key", "-out", "root.pem",
                      "-days", "3", "-config", "openssl.cnf", "-extensions", "root")  # fmt: skip
        self._config(name)
        self._openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "tsa.key", "-out", "tsa.csr", "-config",
                      "openssl.cnf")  # fmt: skip
        signing = ["-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-days", str(days)]
        extensions = ["-extfile", "openssl.cnf", "-extensions", "stamper"]
        self._openssl("x509", "-req", "-in", "tsa.csr", "-out", "tsa.pem", *signing, *extensions)

    def _config(self, common_name: str) -> None:
        (self.folder / "openssl.cnf").write_text(CONFIG.format(folder=self.folder, common_name=common_name))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def answer(self, question: bytes) -> bytes:
        """Return the authority's response to a time-stamp query."""
        (self.folder / "question.tsq").write_bytes(question)
        self._openssl("ts", "-reply", "-config", "openssl.cnf", "-section", "here", "-queryfile", "question.tsq",
                      "-out", "answer.tsr")  # fmt: skip
        return (self.folder / "answer.tsr").read_bytes()

    def __enter__(self) -> Authority:
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                question = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "application/timestamp-reply")
                self.end_headers()
                self.wfile.write(authority.answer(question))

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/tsr"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
