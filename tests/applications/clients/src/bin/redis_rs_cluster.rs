//! redis-rs as a cluster client: redis_rs_cluster PORT...

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ephesus_clients::{Outcome, ask, patiently, ports};
use redis::Commands;
use redis::cluster::ClusterClient;

const KEYS: u64 = 300;

fn main() -> Outcome {
    let urls: Vec<String> = ports()
        .iter()
        .map(|port| format!("redis://127.0.0.1:{port}/"))
        .collect();
    let client = ClusterClient::new(urls)?;
    let mut connection = client.get_connection()?;
    for n in 0..KEYS {
        connection.set::<_, _, ()>(format!("k{n}"), n)?;
    }
    let is_over = Arc::<AtomicBool>::default();
    let worker = std::thread::spawn({
        let (client, is_over) = (client.clone(), Arc::clone(&is_over));
        move || {
            let mut connection = client.get_connection().expect("a connection");
            let mut added = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let found: u64 = connection.incr("{w}counter", 1).expect("INCR");
                added += 1;
                assert_eq!(found, added);
            }
            added
        }
    });
    ask("move");
    is_over.store(true, Ordering::Relaxed);
    let added = worker.join().expect("no error");
    assert_eq!(connection.get::<_, u64>("{w}counter")?, added);
    let read = |connection: &mut redis::cluster::ClusterConnection| -> redis::RedisResult<()> {
        for n in 0..KEYS {
            assert_eq!(connection.get::<_, u64>(format!("k{n}"))?, n);
        }
        Ok(())
    };
    read(&mut connection)?;
    ask("restart");
    patiently(|| read(&mut connection));
    let mut pipe = redis::cluster::cluster_pipe();
    pipe.set("{p}a", 1).incr("{p}a", 1).get("{q}absent");
    let done: (String, i64, Option<String>) = pipe.query(&mut connection)?;
    assert_eq!(done, ("OK".to_owned(), 2, None));
    println!("ok");
    Ok(())
}
