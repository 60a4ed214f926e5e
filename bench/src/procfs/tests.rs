use super::*;

#[test]
fn cpu_clock_agrees_with_stat() {
    let me = Pid(std::process::id());
    let start = cpu_time(me).expect("clock");
    while cpu_time(me).expect("clock") - start < Duration::from_millis(60) {
        std::hint::spin_loop();
    }
    let by_clock = cpu_time(me).expect("clock").as_secs_f64();
    let stat = read(me, Process::stat).expect("stat");
    let by_ticks = (stat.utime + stat.stime) as f64 / ticks_per_second() as f64;
    assert!(
        (by_clock - by_ticks).abs() < 0.05,
        "{by_clock} s against {by_ticks} s"
    );
}

#[test]
fn own_process_is_visible() {
    let me = Pid(std::process::id());
    let [resident, peak] = resident_bytes(me).expect("rss");
    assert!(resident > 100_000 && peak >= resident);
    let threads = threads(me).expect("threads");
    assert!(threads.iter().any(|thread| thread.tid == me.0 as i32));
    assert!(threads.iter().all(|thread| !thread.cpus.is_empty()));
    let before = written_bytes(me).expect("io");
    assert!(written_bytes(me).expect("io") >= before);
    assert!(CpuMark::of(me).expect("CPU").elapsed().is_ok());
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let nobody = Pid(5_000_000);
    assert!(cpu_time(nobody).is_err() && resident_bytes(nobody).is_err());
    assert!(threads(nobody).is_err() && written_bytes(nobody).is_err());
}

#[test]
fn threads_have_cpu_times_and_names() {
    let own = Pid(std::process::id());
    let threads = super::threads(own).expect("this process");
    assert!(!threads.is_empty() && threads.iter().all(|thread| !thread.name.is_empty()));
    let sum: Duration = threads.iter().map(|thread| thread.cpu).sum();
    assert!(sum > Duration::ZERO);
}

#[test]
fn a_peak_begins_anew() {
    let own = Pid(std::process::id());
    let much = vec![1u8; 200 << 20];
    assert!(std::hint::black_box(&much).iter().all(|&byte| byte == 1));
    drop(much);
    let [_, before] = resident_bytes(own).expect("peak");
    reset_peak(own).expect("reset");
    let [_, after] = resident_bytes(own).expect("peak");
    assert!(before > 200 << 20 && after < before, "{before} {after}");
}
