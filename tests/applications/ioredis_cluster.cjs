// ioredis as a cluster client: node ioredis_cluster.cjs PORT...
const assert = require("node:assert");
const Redis = require("ioredis");
const { move, restart, patiently, run } = require("./events.cjs");

const KEYS = 300;

run(async () => {
  const seeds = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
  const cluster = new Redis.Cluster(seeds, { clusterRetryStrategy: () => 50 });
  cluster.on("error", () => {});
  const all = (action) => Promise.all(Array.from({ length: KEYS }, (_, n) => action(n)));
  const expected = Array.from({ length: KEYS }, (_, n) => String(n));
  await all((n) => cluster.set(`k${n}`, n));
  let moving = true;
  let added = 0;
  const worker = (async () => {
    while (moving) {
      await cluster.incr("{w}counter");
      added += 1;
      // MULTI is not sent on when its slot moves: the application tries again.
      const done = await patiently(() => cluster.multi().set("{w}a", added).get("{w}a").exec());
      assert.deepEqual(done, [[null, "OK"], [null, String(added)]]);
    }
  })();
  await move();
  moving = false;
  await worker;
  assert.equal(await cluster.get("{w}counter"), String(added));
  assert.deepEqual(await all((n) => cluster.get(`k${n}`)), expected);
  await restart();
  await patiently(async () => assert.deepEqual(await all((n) => cluster.get(`k${n}`)), expected));
  cluster.disconnect();
});
