use ::glommio::LocalExecutorBuilder;
use ephesus_wire::Lsn;

use super::*;
use crate::driver::Log;
use crate::options::{LogId, LogOptions};

#[test]
fn a_log_works_inside_an_executor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_path_buf();
    let executor = LocalExecutorBuilder::default()
        .io_memory(1 << 20)
        .spawn(move || async move {
            let opts = LogOptions {
                segment_bytes: 1 << 20,
                ..LogOptions::new(LogId([6; 16]))
            };
            let mut found = Vec::new();
            for life in 0..3u8 {
                found.clear();
                let disk = GlommioDisk::new(&path, Durability::Strict).unwrap();
                let mut visit = |_: Lsn, record: &[u8]| {
                    found.push(record.to_vec());
                    Ok(())
                };
                let (mut log, _) = Log::open(disk, &opts, Lsn::ZERO, 1, &mut visit)
                    .await
                    .unwrap();
                for _ in 0..3 {
                    log.append(&vec![life; 200_000]).unwrap();
                    log.commit(1).await.unwrap();
                }
            }
            found
        });
    let found = executor.unwrap().join().unwrap();
    let expected: Vec<_> = [0, 0, 0, 1, 1, 1].map(|life| vec![life; 200_000]).into();
    assert_eq!(found, expected);
}
