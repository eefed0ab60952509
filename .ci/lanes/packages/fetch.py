"""Fetches the files of a graph from servers that others wrote or use: `fetch.py LIMEN_RUN`.

moto is S3 and checks every signature with botocore. The server below has the layout of the Hugging Face Hub, as its own client expects it.
"""

import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import boto3
import huggingface_hub
import requests
from moto.server import ThreadedMotoServer

PROGRAM = os.path.abspath(sys.argv[1])
COMMIT = "0123456789abcdef0123456789abcdef01234567"
KEY = "models/ä b+c.npy"
REPOSITORY, FILE = "acme/voice", "onnx/head w.npy"
GRAPH = """
version: 1
nodes:
  a: {{ kind: synthetic, config: {{ pattern: counter, count: 3, shape: [2], dtype: f32 }} }}
  b: {{ kind: linear, config: {{ weight: {{ file: '{}' }} }}, from: a }}
  c: {{ kind: linear, config: {{ weight: {{ file: '{}' }} }}, from: b }}
  d: {{ kind: 'null', from: c }}
"""


def array(numbers):
    """A .npy file with two rows of two numbers."""
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + b"".join(n.to_bytes(4, "little") for n in numbers)


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.url, self.seen = f"http://127.0.0.1:{self.server_port}", []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Storage(http.server.BaseHTTPRequestHandler):
    """Where the Hub sends clients for large files."""

    content = array([3, 4, 5, 6])

    def do_GET(self):
        self.server.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.send_header("ETag", '"storage"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(self.content)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


class Hub(Storage):
    def do_GET(self):
        self.server.seen.append((self.path, self.headers["Authorization"]))
        self.send_response(302)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Linked-Size", str(len(Storage.content)))
        self.send_header("X-Linked-ETag", f'"{hashlib.sha256(Storage.content).hexdigest()}"')
        self.send_header("Location", f"{storage.url}/signed?key=hidden")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET


def limen(*words, code=0, **environment):
    """Runs the program; returns what it prints."""
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, env={"PATH": os.environ["PATH"], **environment})
    assert done.returncode == code, (words, done)
    assert "hidden" not in done.stdout + done.stderr and "SECRET" not in done.stdout + done.stderr, done
    return done.stdout + done.stderr


moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
moto.start()
host, port = moto.get_host_and_port()
endpoint = f"http://{host}:{port}"
options = {"endpoint_url": endpoint, "region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
s3, iam = boto3.client("s3", **options), boto3.client("iam", **options)
s3.create_bucket(Bucket="limen")
s3.put_object(Bucket="limen", Key=KEY, Body=array([1, 2, 3, 4]))
iam.create_user(UserName="robot")
policy = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}
iam.put_user_policy(UserName="robot", PolicyName="read", PolicyDocument=json.dumps(policy))
key = iam.create_access_key(UserName="robot")["AccessKey"]
# From now on, every request needs a valid signature.
requests.post(f"{endpoint}/moto-api/reset-auth", data="0", timeout=60).raise_for_status()

storage, hub = Server(Storage), Server(Hub)
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    downloaded = huggingface_hub.hf_hub_download(
        REPOSITORY, FILE, revision="v1/rc", endpoint=hub.url, token="hf_hidden", cache_dir=folder / "hub"
    )
    assert pathlib.Path(downloaded).read_bytes() == Storage.content
    (asked,) = {path for path, token in hub.seen if token == "Bearer hf_hidden"}
    hub.seen.clear()
    storage.seen.clear()

    graph, cache = folder / "graph.yaml", folder / "cache"
    urls = [f"s3://limen/{KEY}", f"hf://{REPOSITORY}/{FILE}@v1/rc"]
    graph.write_text(GRAPH.format(*urls))
    words = ("fetch", str(graph), "--cache", str(cache))
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": "hf_hidden",
    }
    limen("check", str(graph), "--cache", str(cache), code=2)
    wrong = limen(*words, code=1, **{**environment, "AWS_SECRET_ACCESS_KEY": "SECRET"})
    assert "answered 403 Forbidden; check the key of AWS" in wrong, wrong
    limen(*words, **environment)
    # The same request as the Hub's own client makes, and its token only there.
    assert {(path, token) for path, token in hub.seen} == {(asked, "Bearer hf_hidden")}, (hub.seen, asked)
    assert storage.seen and all(token is None for _, token in storage.seen), storage.seen
    lock = json.loads((folder / "graph.lock").read_text())["files"]
    for url, content in zip(urls, [array([1, 2, 3, 4]), Storage.content]):
        assert lock[url]["sha256"] == hashlib.sha256(content).hexdigest() and lock[url]["size"] == len(content), lock
    assert lock[urls[1]]["revision"] == COMMIT, lock
    text = (folder / "graph.lock").read_text()
    assert key["SecretAccessKey"] not in text and "hidden" not in text, text

    # A run needs no server, and no second fetch either.
    moto.stop()
    hub.shutdown()
    storage.shutdown()
    print(limen(*words, "--locked").strip())
    limen(str(graph), "--cache", str(cache), "--quiet", "--fail-on", "lost > 0")
