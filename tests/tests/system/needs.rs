//! A test that does not get what it needs fails in one line, unless such tests may be left out.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// One for each need: a mount, a network namespace, several of them, a browser.
const TESTS: [&str; 4] = [
    "damage::a_start_on_a_full_disk_says_so",
    "whole_cluster::cut::a_node_that_is_cut_off_one_way_stops_serving_and_no_other_does",
    "migration::cuts::a_cut_for_long_ends_a_move_which_is_tried_again",
    "page::a_report_shows_all_its_plots_and_figures_and_asks_for_nothing",
];

const CAP_SYS_ADMIN: libc::c_ulong = 21;

/// Runs a test where nothing can be mounted or unshared, and where no browser is found.
fn deprived(test: &str, may_skip: Option<&str>) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "--nocapture", test]);
    command.env_remove("EPHESUS_ALLOW_SKIP");
    command.envs(may_skip.map(|value| ("EPHESUS_ALLOW_SKIP", value)));
    if test.starts_with("page::") {
        command.env("PATH", "");
    }
    // SAFETY: prctl is async-signal-safe. It fails where there is no such capability to lose.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_ADMIN);
            Ok(())
        });
    }
    let output = command.output().expect("run a test");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains("running 1 test"), "{test}: {text}");
    (output.status.success(), text)
}

#[test]
fn a_test_that_lacks_what_it_needs_fails_unless_it_may_be_left_out() {
    for test in TESTS {
        for may_not in [None, Some("0")] {
            let (has_passed, text) = deprived(test, may_not);
            assert!(!has_passed, "{test}: {text}");
            let said = text
                .lines()
                .filter(|line| line.contains("EPHESUS_ALLOW_SKIP=1"));
            assert_eq!(said.count(), 1, "{test}: {text}");
        }
        let (has_passed, text) = deprived(test, Some("1"));
        assert!(has_passed && text.contains("skipped: "), "{test}: {text}");
    }
}
