//! fred as a cluster client: fred_cluster PORT...

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ephesus_clients::{Outcome, ask_beside, patiently_beside, ports};
use fred::prelude::*;
use fred::types::Builder;

const KEYS: u64 = 300;

#[tokio::main]
async fn main() -> Outcome {
    let hosts = ports()
        .into_iter()
        .map(|port| ("127.0.0.1", port))
        .collect::<Vec<_>>();
    let config = Config {
        server: ServerConfig::new_clustered(hosts),
        ..Config::default()
    };
    let mut builder = Builder::from_config(config);
    builder.set_policy(ReconnectPolicy::new_constant(0, 50));
    let client = builder.build()?;
    client.init().await?;
    for n in 0..KEYS {
        client
            .set::<(), _, _>(format!("k{n}"), n as i64, None, None, false)
            .await?;
    }
    let is_over = Arc::<AtomicBool>::default();
    let worker = tokio::spawn({
        let (client, is_over) = (client.clone(), Arc::clone(&is_over));
        async move {
            let mut added = 0_i64;
            while !is_over.load(Ordering::Relaxed) {
                let found: i64 = client.incr("{w}counter").await.expect("INCR");
                added += 1;
                assert_eq!(found, added);
                let transaction = client.multi();
                transaction
                    .set::<(), _, _>("{w}a", added, None, None, false)
                    .await
                    .expect("SET");
                transaction.get::<(), _>("{w}a").await.expect("GET");
                let done: (String, i64) = transaction.exec(true).await.expect("EXEC");
                assert_eq!(done, ("OK".to_owned(), added));
            }
            added
        }
    });
    ask_beside("move").await;
    is_over.store(true, Ordering::Relaxed);
    let added = worker.await?;
    assert_eq!(client.get::<i64, _>("{w}counter").await?, added);
    let read = async || -> Result<(), Error> {
        for n in 0..KEYS {
            assert_eq!(client.get::<i64, _>(format!("k{n}")).await?, n as i64);
        }
        Ok(())
    };
    read().await?;
    ask_beside("restart").await;
    patiently_beside(async || read().await).await;
    let script = "return redis.call('incr', KEYS[1])";
    assert_eq!(
        client
            .eval::<i64, _, _, _>(script, "{w}counter", Vec::<String>::new())
            .await?,
        added + 1
    );
    client.quit().await?;
    println!("ok");
    Ok(())
}
