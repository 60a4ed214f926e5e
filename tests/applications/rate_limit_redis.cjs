// express-rate-limit with rate-limit-redis over node-redis: node rate_limit_redis.cjs PORT
const assert = require("node:assert");
const express = require("express");
const { rateLimit } = require("express-rate-limit");
const { RedisStore } = require("rate-limit-redis");
const { createClient } = require("redis");
const { restart, patiently, run } = require("./events.cjs");

run(async () => {
  const client = createClient({ url: `redis://127.0.0.1:${process.argv[2]}/1` });
  client.on("error", () => {});
  await client.connect();
  const store = new RedisStore({ sendCommand: (...args) => client.sendCommand(args) });
  const app = express();
  app.use(rateLimit({ windowMs: 600000, limit: 5, store, standardHeaders: true, legacyHeaders: false }));
  app.get("/", (_, response) => response.send("fine"));
  const server = app.listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const get = async () => (await fetch(`http://127.0.0.1:${server.address().port}/`)).status;
  const codes = [await get(), await get(), await get()];
  await restart();
  await patiently(() => client.ping());
  codes.push(await get(), await get(), await get());
  assert.deepEqual(codes, [200, 200, 200, 200, 200, 429]);
  const [key] = await client.keys("rl:*");
  const left = await client.pTTL(key);
  assert.ok(left > 0 && left <= 600000, left);
  await store.resetKey(key.slice(3));
  assert.equal(await get(), 200);
});
