use std::time::Duration;

use crate::affinity;

#[test]
fn a_connection_carries_something_measurable() {
    let cpus = affinity::allowed().expect("cpus");
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let rate = super::mb_per_s(first, last, Duration::from_millis(50)).expect("rate");
    assert!(rate.is_finite() && rate > 1.0, "{rate} MB/s");
}

#[test]
fn a_cpu_that_is_not_there_is_refused() {
    let one = affinity::allowed().expect("cpus")[0];
    let absent = libc::CPU_SETSIZE as usize - 1;
    if !affinity::allowed().expect("cpus").contains(&absent) {
        assert!(super::mb_per_s(absent, one, Duration::from_millis(1)).is_err());
    }
}
