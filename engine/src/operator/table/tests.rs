use super::*;

#[test]
fn text_is_aligned_left_and_numbers_right() {
    let mut table = Table::with_head(&[("NAME", Align::Left), ("KEYS", Align::Right)]);
    table.row(["athens".to_owned(), "7".to_owned()]);
    table.row(["k\u{f6}ln".to_owned(), "123456".to_owned()]);
    let expected = "NAME      KEYS\n\
                    athens       7\n\
                    k\u{f6}ln    123456\n";
    assert_eq!(table.render(), expected);
}

#[test]
fn lines_end_without_spaces_and_cells_move_no_cursor() {
    let mut table = Table::plain([Align::Left, Align::Left]);
    table.row(["a".to_owned(), "long".to_owned()]);
    table.row(["b".to_owned(), String::new()]);
    table.row(["\u{1b}[2J\n".to_owned(), "c".to_owned()]);
    assert_eq!(table.render(), "a      long\nb\n?[2J?  c\n");
}
