"""A stock redis-py RedisCluster that must not notice anything: steady.py ENTRY_PORT...

Writes and reads until its input ends; then prints how often. Any exception or wrong value ends it with
an error."""

import select
import sys
import time

from redis.cluster import ClusterNode, RedisCluster


def main() -> None:
    nodes = [ClusterNode("127.0.0.1", int(port)) for port in sys.argv[1:]]
    # Without a second try of its own an error of the cluster is an exception.
    client = RedisCluster(startup_nodes=nodes, decode_responses=True, cluster_error_retry_attempts=0)
    print("ready", flush=True)
    rounds, longest = 0, 0.0
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        key, value = f"steady:{rounds % 1000}", str(rounds)
        assert client.set(key, value)
        assert client.get(key) == value
        longest = max(longest, time.monotonic() - began)
        rounds += 1
    print(f"{rounds} rounds, the longest took {longest * 1000:.0f} ms")


main()
