"""Stock redis-py with transactions: transactions.py ENTRY_PORT DIRECT_PORT."""

import sys
import threading

import redis
from redis.cluster import RedisCluster
from redis.exceptions import WatchError

THREADS = 4
ADDS = 50


def pipelines(client: redis.Redis) -> None:
    pipe = client.pipeline(transaction=True)
    pipe.set("{t}a", 1).incr("{t}a").get("{t}a").set("{t}b", "x")
    replies = pipe.execute()
    # As a cluster client leaves it.
    done = replies[0]
    assert done in (True, "OK") and replies == [done, 2, "2", done], replies
    pipe.incr("{t}b").get("{t}b")
    replies = pipe.execute(raise_on_error=False)
    assert isinstance(replies[0], redis.ResponseError) and replies[1] == "x", replies


def watches(make: object, key: str) -> None:
    """Several clients add to one number, each only if nobody has done so since it has read it."""
    retries = []

    def add() -> None:
        client = make()
        for _ in range(ADDS):
            with client.pipeline(transaction=True) as pipe:
                while True:
                    try:
                        pipe.watch(key)
                        value = int(pipe.get(key) or 0)
                        pipe.multi()
                        pipe.set(key, value + 1)
                        pipe.execute()
                        break
                    except WatchError:
                        retries.append(1)
        client.close()

    threads = [threading.Thread(target=add) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = make()
    assert int(client.get(key)) == THREADS * ADDS, client.get(key)
    client.close()


def main() -> None:
    entry, direct = map(int, sys.argv[1:3])
    for protocol in (2, 3):

        def plain() -> redis.Redis:
            return redis.Redis(port=entry, protocol=protocol, decode_responses=True)

        def cluster() -> RedisCluster:
            return RedisCluster(
                host="127.0.0.1", port=direct, protocol=protocol, decode_responses=True
            )

        for make in (plain, cluster):
            client = make()
            client.flushall()
            pipelines(client)
            for n in range(4):
                watches(make, f"counter:{n}")
            client.close()
        client = plain()

        def add(pipe: redis.client.Pipeline) -> None:
            value = int(pipe.get("w") or 0)
            pipe.multi()
            pipe.set("w", value + 1)

        assert client.transaction(add, "w") == [True]
        client.close()


main()
