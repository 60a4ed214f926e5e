use super::super::text::tests::node_rows;
use super::*;

#[test]
fn a_node_is_found_by_its_name_or_its_id() {
    let rows = node_rows();
    let id = "cc".repeat(16);
    assert_eq!(find(&rows, "cyrene").expect("there").id, id);
    assert_eq!(find(&rows, &id).expect("there").name, "cyrene");
    let error = find(&rows, "sparta").expect_err("not there").to_string();
    assert!(error.contains("sparta"), "{error}");
}

#[test]
fn of_two_nodes_of_one_name_one_has_to_be_chosen() {
    let mut rows = node_rows();
    rows[1].name = "athens".to_owned();
    let error = find(&rows, "athens").expect_err("two").to_string();
    for row in &rows {
        assert!(error.contains(&row.id), "{error}");
        assert_eq!(find(&rows, &row.id).expect("there"), row);
    }
}

#[test]
fn what_is_lost_is_said() {
    let mut rows = node_rows();
    let text = loss(&rows[0]);
    for part in [
        "6 partitions",
        "1000000 keys (150.0 MiB)",
        "120 ms ago",
        "lost for good",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let text = loss(&rows[1]);
    for part in ["failed", "3 partitions", "not known", "has not heard of it"] {
        assert!(text.contains(part), "{text}");
    }
    rows[1].partitions = 0;
    let text = loss(&rows[1]);
    assert!(text.contains("no keys are lost"), "{text}");
}
