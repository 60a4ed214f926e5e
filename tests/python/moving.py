"""A stock redis-py RedisCluster that must not notice that partitions move: moving.py ENTRY_PORT...

Several threads, each with a client and keys of its own, write and read in every way that a stock
client has, until the input ends; then it prints how often. Any exception or wrong value ends it with an
error: apart from following redirections, no client tries anything a second time."""

import os
import random
import sys
import threading
import time
import traceback

from redis.cluster import ClusterNode, RedisCluster

THREADS = 3
KEYS = 600
BATCH = 40

# Names of certificates and of the key, if the ports are for TLS.
FILES = {"ssl_ca_certs": "CA", "ssl_certfile": "CERT", "ssl_keyfile": "KEY"}
TLS = {option: os.environ.get("EPHESUS_TLS_" + name) for option, name in FILES.items()}
OPTIONS = {"ssl": True, **TLS} if TLS["ssl_ca_certs"] else {}


class Worker(threading.Thread):
    def __init__(self, number: int, ports: list[int], is_over: threading.Event) -> None:
        super().__init__(daemon=True)
        nodes = [ClusterNode("127.0.0.1", port) for port in ports]
        self.client = RedisCluster(
            startup_nodes=nodes,
            decode_responses=True,
            cluster_error_retry_attempts=0,
            **OPTIONS,
        )
        self.random = random.Random(number)
        self.name = f"moving:{number}"
        self.is_over = is_over
        self.values: dict[str, str] = {}
        self.count = 0
        self.commands = 0
        self.longest = 0.0
        self.failure = ""

    def key(self) -> str:
        return f"{self.name}:{self.random.randrange(KEYS)}"

    def keys(self) -> list[str]:
        return sorted({self.key() for _ in range(BATCH)})

    def written(self, keys: list[str]) -> dict[str, str]:
        values = {}
        for key in keys:
            self.count += 1
            values[key] = f"{self.count}:" + "x" * self.random.choice((0, 20, 500, 20_000))
        return values

    def set_and_get(self) -> int:
        values = self.written([self.key()])
        for key, value in values.items():
            assert self.client.set(key, value) is True, key
            self.values[key] = value
            assert self.client.get(key) == value, key
        return 2

    def many(self) -> int:
        values = self.written(self.keys())
        assert all(self.client.mset_nonatomic(values))
        self.values |= values
        keys = self.keys()
        found = self.client.mget_nonatomic(keys)
        assert found == [self.values.get(key) for key in keys], keys
        return 2 * BATCH

    def pipelined(self) -> int:
        values = self.written(self.keys())
        pipe = self.client.pipeline()
        for key, value in values.items():
            pipe.set(key, value)
            pipe.get(key)
        replies = pipe.execute()
        assert replies == [reply for value in values.values() for reply in (True, value)]
        self.values |= values
        return len(replies)

    def delete(self) -> int:
        key = self.key()
        was_there = self.values.pop(key, None) is not None
        assert self.client.delete(key) == was_there, key
        assert self.client.exists(key) == 0, key
        return 2

    def tagged(self) -> int:
        tag = f"{{{self.name}:{self.random.randrange(KEYS)}}}"
        pair = {f"{tag}:left": str(self.count), f"{tag}:right": str(self.count)}
        assert self.client.mset(pair) is True
        assert self.client.mget(list(pair)) == list(pair.values())
        assert self.client.delete(*pair) == 2
        return 3

    def run(self) -> None:
        ways = (self.set_and_get, self.many, self.pipelined, self.delete, self.tagged)
        try:
            while not self.is_over.is_set():
                began = time.monotonic()
                self.commands += self.random.choice(ways)()
                self.longest = max(self.longest, time.monotonic() - began)
            for first in range(0, KEYS, BATCH):
                keys = [f"{self.name}:{i}" for i in range(first, min(first + BATCH, KEYS))]
                found = self.client.mget_nonatomic(keys)
                assert found == [self.values.get(key) for key in keys], keys
        except BaseException:
            self.failure = traceback.format_exc()


def main() -> None:
    ports = [int(port) for port in sys.argv[1:]]
    is_over = threading.Event()
    workers = [Worker(number, ports, is_over) for number in range(THREADS)]
    for worker in workers:
        worker.start()
    print("ready", flush=True)
    sys.stdin.read()
    is_over.set()
    for worker in workers:
        worker.join()
    failures = [worker.failure for worker in workers if worker.failure]
    if failures:
        sys.exit("\n".join(failures))
    commands = sum(worker.commands for worker in workers)
    longest = max(worker.longest for worker in workers)
    print(f"{commands} commands, the longest round took {longest * 1000:.0f} ms")


main()
