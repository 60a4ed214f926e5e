use futures_lite::future::block_on;

use super::*;

fn survives(seed: u64, synced: bool) -> Option<Vec<u8>> {
    let disk = FaultDisk::new(seed);
    block_on(async {
        let file = disk.create("a", 4096).await.unwrap();
        file.write_at(&[7; 4096], 0).await.unwrap();
        if synced {
            file.sync().await.unwrap();
            disk.sync_dir().await.unwrap();
        }
    });
    disk.crash();
    disk.contents("a")
}

#[test]
fn what_is_synced_survives_every_crash() {
    for seed in 0..100 {
        assert_eq!(survives(seed, true), Some(vec![7; 4096]));
    }
}

#[test]
fn what_is_not_synced_is_kept_lost_or_torn() {
    let ends: Vec<_> = (0..100).map(|seed| survives(seed, false)).collect();
    assert!(ends.contains(&None));
    assert!(ends.contains(&Some(vec![7; 4096])));
    let torn = |bytes: &Vec<u8>| bytes.contains(&7) && bytes.contains(&0);
    assert!(ends.iter().flatten().any(torn));
}

#[test]
fn operations_fail_when_told_and_files_close_at_a_crash() {
    block_on(async {
        let disk = FaultDisk::new(1);
        let file = disk.create("a", 4096).await.unwrap();
        disk.fail_sync(1);
        assert!(file.sync().await.is_ok());
        assert!(file.sync().await.is_err());
        assert!(
            file.sync().await.is_err(),
            "a failed sync is never followed by a good one"
        );
        assert!(file.write_at(&[0; 4096], 0).await.is_err());
        disk.kill();
        assert!(file.sync().await.is_err());
        let file = disk.open("a", true).await.unwrap();
        disk.fail_after(1);
        assert!(file.sync().await.is_ok());
        assert!(file.sync().await.is_err());
    });
}
