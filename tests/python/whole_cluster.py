"""redis-py's RedisCluster over several nodes: whole_cluster.py KEYS ENTRY_PORT..."""

import sys

from redis.cluster import ClusterNode, RedisCluster


def main() -> None:
    count = int(sys.argv[1])
    nodes = [ClusterNode("127.0.0.1", int(port)) for port in sys.argv[2:]]
    client = RedisCluster(startup_nodes=nodes, decode_responses=True)
    primaries = client.get_primaries()
    assert len(primaries) == 2 * len(nodes), primaries
    for first in range(0, count, 500):
        numbers = range(first, min(first + 500, count))
        assert client.mset_nonatomic({f"py:{i}": i for i in numbers})
    for first in range(0, count, 500):
        numbers = range(first, min(first + 500, count))
        found = client.mget_nonatomic([f"py:{i}" for i in numbers])
        assert found == [str(i) for i in numbers], first
    for i in range(0, count, 20):
        assert client.set(f"py:{i}", -i) and client.get(f"py:{i}") == str(-i)
    pipe = client.pipeline()
    for i in range(count // 10):
        pipe.incr(f"py:{i}")
    assert len(pipe.execute()) == count // 10
    assert client.dbsize(target_nodes=RedisCluster.PRIMARIES) == count
    assert len(list(client.scan_iter(match="py:*", count=500))) == count
    client.close()


main()
