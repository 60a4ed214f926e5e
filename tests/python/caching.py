"""redis-py's client-side cache beside two writers: caching.py ENTRY_PORT DIRECT_PORT."""

import random
import sys
import threading
import time

import redis
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection

# It asks for 7.4, where what it uses has been there since 6.0.
CacheProxyConnection.MIN_ALLOWED_VERSION = "7.2.0"

KEYS = [f"key:{n}" for n in range(20)]


def main() -> None:
    port = int(sys.argv[1])
    cached = redis.Redis(port=port, protocol=3, cache_config=CacheConfig(), decode_responses=True)
    plain = redis.Redis(port=port, decode_responses=True)
    plain.mset({key: "0" for key in KEYS})

    # What was read is answered without the server, which counts the calls.
    def gets() -> int:
        stats = plain.info("commandstats")
        return stats.get("cmdstat_get", {}).get("calls", 0)

    cached.get("key:0")
    before = gets()
    for _ in range(100):
        assert cached.get("key:0") == "0"
    assert gets() == before, (before, gets())
    plain.set("key:0", "1")
    deadline = time.monotonic() + 5
    while cached.get("key:0") != "1":
        assert time.monotonic() < deadline, "it was not told"

    def write(seed: int) -> None:
        rng = random.Random(seed)
        writer = redis.Redis(port=port)
        for n in range(400):
            key, other = rng.sample(KEYS, 2)
            match rng.randrange(6):
                case 0:
                    writer.delete(key)
                case 1:
                    writer.mset({key: n, other: n})
                case 2:
                    writer.set(key, n, px=rng.randrange(1, 20))
                case 3:
                    writer.eval("return redis.call('set', KEYS[1], ARGV[1])", 1, key, n)
                case _:
                    writer.set(key, n)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        for key in KEYS:
            cached.get(key)
    for writer in writers:
        writer.join()

    # Whatever it has, it has it as it is, once it was told; what has expired is found within about a second.
    def is_stale(key: str) -> bool:
        return cached.get(key) != plain.get(key)

    deadline = time.monotonic() + 10
    while stale := [key for key in KEYS if is_stale(key)]:
        assert time.monotonic() < deadline, stale
        time.sleep(0.05)
    plain.flushall()
    while any(cached.get(key) is not None for key in KEYS):
        assert time.monotonic() < deadline, "it was not told of the flush"
        time.sleep(0.05)


main()
