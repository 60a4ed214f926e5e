use super::*;

#[test]
fn names_are_those_of_reports() {
    let names = "set-p16-everysec set-p16-always get-p16 get-p1 set-p1-always set-c1-always set-p16-cores get-p16-cores \
                 latency-images-p1 latency-images-p16 memory restart-1-core restart-2-cores log-bytes";
    let all: Vec<String> = Question::all().iter().map(Question::name).collect();
    assert_eq!(all.join(" "), names);
    for question in Question::all() {
        let json = serde_json::to_value(question).expect("JSON");
        assert_eq!(json, question.name());
        assert!(!question.title().is_empty());
    }
}
