use super::*;
use proptest::prelude::*;

/// A day's use: a login at 9:00, and what was started so many seconds after it.
fn days(model: &mut Model, days: u64, starts: &[(&str, u64)]) {
    let mut open = Open::default();
    for day in 0..days {
        let at = (1 + day) * 86_400_000;
        model.occurs(&mut open, 7, LOGIN, at, day);
        for (program, after_s) in starts {
            let now = at + after_s * 1000;
            model.starts(&mut open, 7, program, now);
            model.occurs(&mut open, 7, program, now, day);
        }
    }
}

fn chances(model: &Model, context: &str) -> Vec<(String, u32)> {
    let likely = model.likely(7, context).into_iter();
    likely.map(|likely| (likely.file_name, (likely.chance * 100.0).round() as u32)).collect()
}

#[test]
fn what_followed_each_time_is_ever_more_likely_and_what_came_late_does_not_follow() {
    let mut model = Model::default();
    let starts = [("a.pack", 10), ("b.pack", 60), ("c.pack", 400)];
    let mut seen = Vec::new();
    for _ in 0..4 {
        days(&mut model, 1, &starts);
        seen.push(chances(&model, LOGIN)[0].1);
    }
    assert_eq!(seen, [50, 66, 74, 78]);
    days(&mut model, 50, &starts);
    let (a, b) = ("a.pack".to_owned(), "b.pack".to_owned());
    assert_eq!(chances(&model, LOGIN), [(a, 94), (b.clone(), 94)]);
    assert_eq!(model.likely(7, LOGIN)[1].after_ms, 60_000);
    // Also after a program: b comes 50 s after a, c 340 s after b.
    assert_eq!(chances(&model, "a.pack"), [(b, 94)]);
    assert_eq!(chances(&model, "b.pack"), []);
    assert_eq!(model.likely(8, LOGIN), []);
}

#[test]
fn what_is_no_longer_started_ages_out() {
    let mut model = Model::default();
    days(&mut model, 20, &[("a.pack", 10)]);
    days(&mut model, 11, &[("b.pack", 10)]);
    let found = chances(&model, LOGIN);
    assert!(found[0].0 == "b.pack" && found[0].1 > 45, "{found:?}");
    assert!(found[1].0 == "a.pack" && found[1].1 < 50, "{found:?}");
    days(&mut model, 200, &[]);
    assert_eq!(chances(&model, LOGIN), []);
}

#[test]
fn a_program_counts_once_for_each_occurrence_and_not_for_itself() {
    let mut model = Model::default();
    days(&mut model, 1, &[("a.pack", 10), ("a.pack", 11), ("a.pack", 12)]);
    assert_eq!(chances(&model, LOGIN), [("a.pack".into(), 50)]);
    assert_eq!(chances(&model, "a.pack"), []);
}

#[test]
fn before_any_login_each_known_program_is_as_likely_as_another() {
    let mut model = Model::default();
    let chance = |model: &Model, name| (model.after_login(7, name).chance * 100.0).round();
    assert_eq!(chance(&model, "a.pack"), 33.0);
    days(&mut model, 10, &[("a.pack", 10)]);
    assert!(chance(&model, "a.pack") > 75.0, "{}", chance(&model, "a.pack"));
    assert!(chance(&model, "b.pack") < 12.0, "{}", chance(&model, "b.pack"));
    model.forget(7, "a.pack");
    assert_eq!(chance(&model, "a.pack"), chance(&model, "b.pack"));
}

#[test]
fn a_window_ends() {
    let (mut model, mut open) = (Model::default(), Open::default());
    model.occurs(&mut open, 7, LOGIN, 1000, 1);
    assert!(open.has(7, LOGIN, 1000 + WINDOW_MS - 1) && !open.has(8, LOGIN, 1000));
    assert!(!open.has(7, LOGIN, 1000 + WINDOW_MS));
}

#[test]
fn a_file_with_wrong_figures_or_names_is_made_right() {
    let file = r#"{"7": {"login": {"times": 4294967295, "at": 5,
        "followers": {"a.pack": {"times": 4294967295, "after_ms": 1}, "../x": {"times": 1, "after_ms": 1}}},
        "passwd": {"times": 1, "at": 1, "followers": {}}}}"#;
    let model: Model = serde_json::from_str(file).unwrap();
    let model = model.bounded(|name| name.ends_with(".pack"));
    assert_eq!(chances(&model, LOGIN), [("a.pack".into(), 94)]);
    assert_eq!(model.users[&7].len(), 1);
}

proptest! {
    #[test]
    fn whatever_is_started_chances_are_below_one_the_model_is_bounded_and_survives_a_file(
        events in proptest::collection::vec((0u32..40, 0u16..200, any::<bool>(), 0u64..90_000), 0..600)
    ) {
        let (mut model, mut open) = (Model::default(), Open::default());
        let mut now = 0;
        for (uid, program, is_login, pause) in events {
            now += pause;
            let name = if is_login { LOGIN.to_owned() } else { format!("{program}.pack") };
            if !is_login {
                model.starts(&mut open, uid, &name, now);
            }
            model.occurs(&mut open, uid, &name, now, now / 1000);
            prop_assert!(model.users.len() <= MOST_USERS && open.0.len() <= MOST_USERS);
            prop_assert!(open.0.values().all(|open| open.len() <= MOST_OPEN));
        }
        for (uid, contexts) in &model.users {
            prop_assert!(contexts.len() <= MOST_CONTEXTS);
            for (name, context) in contexts {
                prop_assert!(context.followers.len() <= MOST_FOLLOWERS);
                for likely in model.likely(*uid, name) {
                    prop_assert!((0.0..1.0).contains(&likely.chance));
                    prop_assert!((0.0..=1.0).contains(&model.after_login(*uid, &likely.file_name).chance));
                }
            }
        }
        let file = serde_json::to_vec(&model).unwrap();
        let read: Model = serde_json::from_slice(&file).unwrap();
        prop_assert_eq!(read.bounded(|_| true), model);
    }
}
