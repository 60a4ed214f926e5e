// node-redis as a cluster client: node node_redis_cluster.cjs PORT...
const assert = require("node:assert");
const { createCluster } = require("redis");
const { move, restart, patiently, run } = require("./events.cjs");

const KEYS = 300;

run(async () => {
  const rootNodes = process.argv.slice(2).map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  const cluster = createCluster({ rootNodes, defaults: { socket: { reconnectStrategy: 50 } } });
  cluster.on("error", () => {});
  await cluster.connect();
  const all = (action) => Promise.all(Array.from({ length: KEYS }, (_, n) => action(n)));
  await all((n) => cluster.set(`k${n}`, String(n)));
  let moving = true;
  let added = 0;
  const worker = (async () => {
    while (moving) {
      await cluster.incr("{w}counter");
      added += 1;
      const done = await cluster.multi().set("{w}a", String(added)).get("{w}a").exec();
      assert.deepEqual(done, ["OK", String(added)]);
    }
  })();
  await move();
  moving = false;
  await worker;
  assert.equal(await cluster.get("{w}counter"), String(added));
  assert.deepEqual(await all((n) => cluster.get(`k${n}`)), Array.from({ length: KEYS }, (_, n) => String(n)));
  await restart();
  await patiently(async () =>
    assert.deepEqual(await all((n) => cluster.get(`k${n}`)), Array.from({ length: KEYS }, (_, n) => String(n))),
  );
  assert.equal(await cluster.eval("return redis.call('incr', KEYS[1])", { keys: ["{w}counter"] }), added + 1);
  cluster.destroy();
});
