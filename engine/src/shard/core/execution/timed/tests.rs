use crate::command::spec::Cmd;
use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, key};
use crate::shard::timing::Times;

#[test]
fn no_command_leaves_a_part_of_its_time_to_those_that_follow() {
    let mut bed = Bed::new(2, &[7]);
    let (here, there, moved) = (key(0, 0), key(1, 0), key(7, 0));
    let get = |key: &str| format!("GET {key}");
    let commands = [
        vec![get(&here)],
        vec![get(&there)],
        vec![get(&there), get(&there)],
        vec![get(&there), get(&here), get(&there)],
        vec![format!("MGET {there} {here}")],
        vec![format!("MSET {there} 1 {here}")],
        vec![get(&moved)],
        vec![format!("EVAL return 1 1 {there}")],
        vec!["DBSIZE".to_owned()],
        vec!["MULTI".to_owned(), get(&there), "EXEC".to_owned()],
    ];
    for kind in [Entry, Direct] {
        let client = bed.connect(0, kind);
        for commands in &commands {
            let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
            bed.ask(client, &commands);
            for shard in 0..2 {
                let is_untimed = bed.core(shard).keyspace.is_untimed();
                assert!(!is_untimed, "{kind:?}, shard {shard}: {commands:?}");
            }
        }
    }
}

#[test]
fn the_own_part_of_a_divided_command_counts_as_executed_here() {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(0, Entry);
    let (here, there) = (key(0, 0), key(1, 0));
    bed.ask(client, &[&format!("MGET {here} {there}")]);
    bed.ask(client, &[&format!("MGET {there} {}", key(3, 0))]);
    for (shard, executed) in [(0, 1), (1, 2)] {
        let stats = bed.core(shard).stats().of(Cmd::Mget);
        let times = Times::of([&stats.times].into_iter());
        assert_eq!(times.count(), executed, "{shard}");
    }
}
