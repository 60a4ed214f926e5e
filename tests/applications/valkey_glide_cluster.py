"""valkey-glide as a cluster client: python valkey_glide_cluster.py PORT..."""

import asyncio
import sys

from events import move, restart
from glide import (
    ClusterBatch,
    GlideClusterClient,
    GlideClusterClientConfiguration,
    NodeAddress,
)

KEYS = 300


async def main():
    nodes = [NodeAddress("127.0.0.1", int(port)) for port in sys.argv[1:]]
    config = GlideClusterClientConfiguration(nodes, request_timeout=3000)
    client = await GlideClusterClient.create(config)
    await asyncio.gather(*(client.set(f"k{n}", str(n)) for n in range(KEYS)))

    async def read():
        found = await asyncio.gather(*(client.get(f"k{n}") for n in range(KEYS)))
        assert found == [str(n).encode() for n in range(KEYS)]

    added, moving = 0, True

    async def work():
        nonlocal added
        while moving:
            await client.incr("{w}counter")
            added += 1
            batch = ClusterBatch(is_atomic=True)
            batch.set("{w}a", str(added))
            batch.get("{w}a")
            assert await client.exec(batch, raise_on_error=True) == ["OK", str(added).encode()]

    worker = asyncio.create_task(work())
    await asyncio.to_thread(move)
    moving = False
    await worker
    assert await client.get("{w}counter") == str(added).encode()
    await read()
    await asyncio.to_thread(restart)
    for attempt in range(400):
        try:
            await read()
            break
        except Exception:
            if attempt == 399:
                raise
            await asyncio.sleep(0.05)
    await client.close()


asyncio.run(main())
print("ok")
