// rate-limiter-flexible over ioredis: node rate_limiter_flexible.cjs PORT
const assert = require("node:assert");
const Redis = require("ioredis");
const { RateLimiterRedis } = require("rate-limiter-flexible");

async function main() {
  const redis = new Redis({ port: Number(process.argv[2]), enableOfflineQueue: true });
  const limiter = new RateLimiterRedis({ storeClient: redis, points: 5, duration: 2, keyPrefix: "rl" });
  for (let left = 4; left >= 0; left -= 1) {
    const consumed = await limiter.consume("me");
    assert.equal(consumed.remainingPoints, left);
    assert.ok(consumed.msBeforeNext > 0 && consumed.msBeforeNext <= 2000);
  }
  const refused = await limiter.consume("me").then(() => null, (reason) => reason);
  assert.ok(refused && refused.msBeforeNext > 0 && refused.remainingPoints === 0);
  const read = await limiter.get("me");
  assert.equal(read.consumedPoints, 6);
  assert.equal((await limiter.reward("me", 2)).consumedPoints, 4);
  assert.equal((await limiter.penalty("me", 1)).consumedPoints, 5);
  await limiter.set("other", 3, 10);
  assert.equal((await limiter.get("other")).consumedPoints, 3);
  await limiter.block("blocked", 10);
  assert.ok(await limiter.consume("blocked").then(() => false, () => true));
  assert.equal(await limiter.delete("other"), true);
  assert.equal(await limiter.get("other"), null);
  await new Promise((done) => setTimeout(done, refused.msBeforeNext + 100));
  assert.equal((await limiter.consume("me")).consumedPoints, 1);
  const many = await Promise.allSettled(Array.from({ length: 50 }, () => limiter.consume("crowd")));
  assert.equal(many.filter((one) => one.status === "fulfilled").length, 5);
  await redis.quit();
  console.log("ok");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
