"""redis-py's RedisCluster, started from either kind of port: cluster.py ENTRY_PORT DIRECT_PORT."""

import sys

from redis.cluster import RedisCluster


def main() -> None:
    for port in map(int, sys.argv[1:3]):
        for protocol in (2, 3):
            client = RedisCluster(
                host="127.0.0.1", port=port, protocol=protocol, decode_responses=True
            )
            assert len(client.get_primaries()) == 3, client.get_nodes()
            client.flushall()
            for i in range(500):
                assert client.set(f"key:{i}", i)
            assert all(client.get(f"key:{i}") == str(i) for i in range(500))
            assert client.dbsize(target_nodes=RedisCluster.PRIMARIES) == 500
            assert len(list(client.scan_iter(count=50))) == 500
            assert client.mset({"{t}a": 1, "{t}b": 2})
            assert client.mget("{t}a", "{t}b") == ["1", "2"]
            assert client.mset_nonatomic({f"n{i}": i for i in range(50)})
            assert client.mget_nonatomic([f"n{i}" for i in range(50)]) == [
                str(i) for i in range(50)
            ]
            assert client.rename("{t}a", "{t}c") and client.get("{t}c") == "1"
            assert client.incr("counter") == 1
            pipe = client.pipeline()
            for i in range(300):
                pipe.set(f"p{i}", i)
                pipe.get(f"p{i}")
            assert pipe.execute()[1::2] == [str(i) for i in range(300)]
            assert client.delete("key:1", "key:2", "key:3") == 3
            assert client.keyslot("foo") == client.cluster_keyslot("foo")
            client.close()


main()
