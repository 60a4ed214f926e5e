// redlock over ioredis: node redlock.cjs PORT
const assert = require("node:assert");
const Redis = require("ioredis");
const Redlock = require("redlock");
const { restart, patiently, run } = require("./events.cjs");

run(async () => {
  const redis = new Redis({ port: Number(process.argv[2]), db: 2 });
  redis.on("error", () => {});
  const redlock = new Redlock([redis], { retryCount: 0 });
  redlock.on("clientError", () => {});
  const refused = (promise) => assert.rejects(Promise.resolve(promise), Redlock.LockError);
  const lock = await redlock.lock(["{r}a", "{r}b"], 600000);
  await refused(redlock.lock("{r}b", 600000));
  await restart();
  await patiently(() => redis.ping());
  await refused(redlock.lock("{r}a", 600000));
  await lock.extend(900000);
  assert.ok((await redis.pttl("{r}a")) > 600000);
  await lock.unlock();
  const next = await redlock.lock("{r}a", 600000);
  await refused(lock.unlock());
  await next.unlock();
  assert.equal(await redis.exists("{r}a", "{r}b"), 0);
});
