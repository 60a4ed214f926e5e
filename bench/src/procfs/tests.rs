use super::*;

#[test]
fn stat_survives_a_name_with_spaces_and_parentheses() {
    let line = "77 (a) b (c)) S 1 77 77 0 -1 4194560 100 200 3 4 120 35 7 8 20 0 5 0 1234 1 2";
    assert_eq!(
        parse_stat(line).expect("stat"),
        StatTicks {
            own_ticks: 155,
            children_ticks: 15
        }
    );
    assert!(parse_stat("77 (x) S 1 2").is_err());
    assert!(parse_stat("no parenthesis").is_err());
}

#[test]
fn status_lines_are_found_by_their_whole_name() {
    let text = "Name:\tshard-0\nVmRSSx:\t1 kB\nVmRSS:\t  2048 kB\nCpus_allowed_list:\t0-1,4\n";
    assert_eq!(parse_status_kib(text, "VmRSS").expect("rss"), 2048);
    assert!(parse_status_kib(text, "VmHWM").is_err());
    assert_eq!(field(text, "Cpus_allowed_list"), Some("0-1,4"));
}

#[test]
fn io_counters_are_the_device_ones() {
    let text = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 8192\n\
                cancelled_write_bytes: 1\n";
    assert_eq!(
        parse_io(text).expect("io"),
        IoCounters {
            read_bytes: 4096,
            write_bytes: 8192
        }
    );
    assert!(parse_io("rchar: 9\n").is_err());
}

#[test]
fn cpu_lists_expand() {
    assert_eq!(parse_cpu_list("0").expect("list"), [0]);
    assert_eq!(parse_cpu_list("0-2,5\n").expect("list"), [0, 1, 2, 5]);
    assert!(parse_cpu_list("a-b").is_err());
}

#[test]
fn cpu_clock_agrees_with_stat() {
    let me = Pid(std::process::id());
    let start = cpu_time(me).expect("clock");
    while cpu_time(me).expect("clock") - start < Duration::from_millis(60) {
        std::hint::spin_loop();
    }
    let by_clock = cpu_time(me).expect("clock").as_secs_f64();
    let ticks = parse_stat(&read(me, "stat").expect("stat"))
        .expect("stat")
        .own_ticks;
    let by_ticks = ticks as f64 / ticks_per_second();
    assert!(
        (by_clock - by_ticks).abs() < 0.05,
        "{by_clock} s against {by_ticks} s"
    );
}

#[test]
fn own_process_is_visible() {
    let me = Pid(std::process::id());
    assert!(resident_bytes(me).expect("rss") > 100_000);
    let threads = thread_placements(me).expect("threads");
    assert!(threads.iter().any(|thread| thread.tid == me.0));
    assert!(
        threads
            .iter()
            .all(|thread| parse_cpu_list(&thread.cpus_allowed).is_ok())
    );
}

#[test]
fn threads_have_cpu_times_and_names() {
    assert_eq!(
        parse_schedstat("1500 20 3\n").expect("schedstat"),
        Duration::from_nanos(1500)
    );
    assert!(parse_schedstat("").is_err());
    let own = Pid(std::process::id());
    let threads = thread_cpu_times(own).expect("this process");
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
    let before = peak_resident_bytes(own).expect("peak");
    reset_peak(own).expect("reset");
    let after = peak_resident_bytes(own).expect("peak");
    assert!(before > 200 << 20 && after < before, "{before} {after}");
}
