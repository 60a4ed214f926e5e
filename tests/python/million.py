"""A stock redis-py RedisCluster writes and reads many keys: million.py KEYS ENTRY_PORT...

It says when a quarter is written. Any exception or wrong value ends it with an error; it does not try
anything a second time of its own."""

import sys
import time

from redis.cluster import ClusterNode, RedisCluster

BATCH = 1000


def value_of(i: int) -> str:
    return f"{i}:" + "x" * (20 + i % 80)


def main() -> None:
    count = int(sys.argv[1])
    nodes = [ClusterNode("127.0.0.1", int(port)) for port in sys.argv[2:]]
    client = RedisCluster(startup_nodes=nodes, decode_responses=True, cluster_error_retry_attempts=0)

    def pass_over(what: str, add, check) -> None:
        began, longest = time.monotonic(), 0.0
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            sent = time.monotonic()
            pipe = client.pipeline()
            for i in numbers:
                add(pipe, i)
            for i, reply in zip(numbers, pipe.execute(), strict=True):
                assert check(i, reply), f"{what} {i}: {reply!r}"
            longest = max(longest, time.monotonic() - sent)
            if first < count // 4 <= first + BATCH:
                print(f"a quarter is {what}", flush=True)
        took = time.monotonic() - began
        print(
            f"{count} keys {what} in {took:.1f} s, {count / took:.0f} per second; the longest of "
            f"{BATCH} took {longest * 1000:.0f} ms",
            flush=True,
        )

    pass_over("written", lambda pipe, i: pipe.set(f"million:{i}", value_of(i)), lambda _, reply: reply)
    pass_over("read", lambda pipe, i: pipe.get(f"million:{i}"), lambda i, reply: reply == value_of(i))
    assert client.dbsize(target_nodes=RedisCluster.PRIMARIES) == count
    client.close()


main()
