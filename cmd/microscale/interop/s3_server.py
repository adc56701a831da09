"""Serves an object store with Amazon's API, by moto, with the bucket BUCKET, until its input ends. Prints the port.

usage: s3_server.py BUCKET

One request is answered at a time: moto's check of a condition and its storing are two steps.
"""

import logging
import sys
import threading

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app))
threading.Thread(target=server.serve_forever, daemon=True).start()
boto3.client("s3", endpoint_url=f"http://127.0.0.1:{server.server_port}", region_name="us-east-1", aws_access_key_id="id",
             aws_secret_access_key="secret").create_bucket(Bucket=sys.argv[1])
print(server.server_port, flush=True)
sys.stdin.read()
