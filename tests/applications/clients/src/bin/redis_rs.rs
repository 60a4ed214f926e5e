//! redis-rs, plain: redis_rs PORT

use ephesus_clients::{
    COMPARE_AND_DELETE, Outcome, ask, ask_beside, patiently, patiently_beside, ports,
};
use redis::{AsyncCommands, Commands, Script};

#[tokio::main]
async fn main() -> Outcome {
    let url = |rest: &str| format!("redis://127.0.0.1:{}/3{rest}", ports()[0]);
    for rest in ["", "?protocol=resp3"] {
        let client = redis::Client::open(url(rest))?;
        let mut connection = client.get_connection()?;
        redis::cmd("FLUSHDB").exec(&mut connection)?;
        let (first, second): (i64, Option<String>) = redis::pipe()
            .incr("{t}a", 1)
            .get("{t}absent")
            .query(&mut connection)?;
        assert_eq!((first, second), (1, None));
        let done: (i64, String) =
            redis::transaction(&mut connection, &["{t}a"], |connection, pipe| {
                let value: i64 = connection.get("{t}a")?;
                pipe.set("{t}a", value + 1)
                    .ignore()
                    .incr("{t}b", 5)
                    .get("{t}a")
                    .query(connection)
            })?;
        assert_eq!(done, (5, "2".to_owned()));
        let script = Script::new(COMPARE_AND_DELETE);
        assert_eq!(
            script.key("{t}a").arg("1").invoke::<i64>(&mut connection)?,
            0
        );
        ask("restart");
        let mut connection = patiently(|| client.get_connection());
        assert_eq!(connection.get::<_, i64>("{t}b")?, 5);
        assert_eq!(
            script.key("{t}a").arg("2").invoke::<i64>(&mut connection)?,
            1
        );
    }
    let client = redis::Client::open(url(""))?;
    let manager = client.get_connection_manager().await?;
    let () = manager.clone().set("{m}a", "x").await?;
    ask_beside("restart").await;
    let value: String = patiently_beside(async || manager.clone().get("{m}a").await).await;
    assert_eq!(value, "x");
    println!("ok");
    Ok(())
}
