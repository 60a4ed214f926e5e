//! fred, plain: fred_client PORT

use std::time::Duration;

use ephesus_clients::{COMPARE_AND_DELETE, Outcome, ask_beside, patiently_beside, ports};
use fred::clients::SubscriberClient;
use fred::prelude::*;
use fred::types::scripts::Script;
use fred::types::{Builder, RespVersion};

#[tokio::main]
async fn main() -> Outcome {
    for version in [RespVersion::RESP2, RespVersion::RESP3] {
        let mut config = Config::from_url(&format!("redis://127.0.0.1:{}/3", ports()[0]))?;
        config.version = version;
        let mut builder = Builder::from_config(config);
        builder.set_policy(ReconnectPolicy::new_constant(0, 50));
        let client = builder.build()?;
        client.init().await?;
        client.flushall::<()>(false).await?;
        client
            .set::<(), _, _>("{t}a", "1", Some(Expiration::EX(600)), None, false)
            .await?;
        let found: Vec<Option<String>> = client.mget(vec!["{t}a", "{t}absent"]).await?;
        assert_eq!(found, [Some("1".to_owned()), None]);
        let pipeline = client.pipeline();
        pipeline.incr::<(), _>("{t}a").await?;
        pipeline.ttl::<(), _>("{t}a").await?;
        let (value, left): (i64, i64) = pipeline.all().await?;
        assert!(value == 2 && left > 590, "{value}, {left}");
        let transaction = client.multi();
        transaction
            .set::<(), _, _>("{t}b", "x", None, None, false)
            .await?;
        transaction.append::<(), _, _>("{t}b", "y").await?;
        transaction.get::<(), _>("{t}b").await?;
        let done: (String, i64, String) = transaction.exec(true).await?;
        assert_eq!(done, ("OK".to_owned(), 2, "xy".to_owned()));
        let script = Script::from_lua(COMPARE_AND_DELETE);
        script.load(&client).await?;
        assert_eq!(
            script.evalsha::<i64, _, _, _>(&client, "{t}a", "1").await?,
            0
        );

        let subscriber: SubscriberClient = builder.build_subscriber_client()?;
        subscriber.init().await?;
        let mut heard = subscriber.message_rx();
        let _managed = subscriber.manage_subscriptions();
        subscriber.subscribe("news").await?;
        // It goes on before the server has answered.
        while client.publish::<i64, _, _>("news", "hello").await? == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(
            heard.recv().await?.value.as_string().as_deref(),
            Some("hello")
        );

        ask_beside("restart").await;
        let value: String = patiently_beside(async || client.get("{t}b").await).await;
        assert_eq!(value, "xy");
        script.load(&client).await?;
        assert_eq!(
            script
                .evalsha::<i64, _, _, _>(&client, "{t}b", "xy")
                .await?,
            1
        );
        // It subscribes again by itself.
        while client.publish::<i64, _, _>("news", "again").await? == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(
            heard.recv().await?.value.as_string().as_deref(),
            Some("again")
        );
        client.quit().await?;
        subscriber.quit().await?;
    }
    println!("ok");
    Ok(())
}
