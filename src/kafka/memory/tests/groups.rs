//! Membership: who reads what, who is told, whose offsets count.

use super::*;

fn revoked(source: &mut MemorySource) -> Revoked {
    match source.next() {
        Some(Input::Revoked(r)) => r,
        other => panic!("no revoke but {other:?}"),
    }
}

/// Follows the group until there is nothing to answer.
fn take_any(source: &mut MemorySource) {
    loop {
        match source.next() {
            Some(Input::Assigned(a)) => confirm(source, &a),
            Some(Input::Revoked(r) | Input::Lost(r)) => source.released(&r).expect("released"),
            Some(Input::Drained(_)) => {}
            _ => return,
        }
    }
}

/// Lets members answer the group until all have what is theirs.
fn take_both(first: &mut MemorySource, second: &mut MemorySource) {
    for _ in 0..3 {
        take_any(first);
        take_any(second);
    }
}

/// If this broke, tasks of one partition number could land on different members, or a member's start would not spread the work.
#[test]
fn a_newcomer_gets_its_share_only_after_the_others_gave_back() {
    let w = world();
    let mut first = w.source(0);
    assert_eq!(take(&mut first), [Tp::new("in", 0), Tp::new("in", 1)]);
    let mut second = w.source(1);
    assert!(second.next().is_none(), "the first still holds everything");
    let going = revoked(&mut first);
    assert!(second.next().is_none());
    assert!(first.next().is_none(), "nothing is read while a revoke is pending");
    first.released(&going).expect("released");
    assert_eq!(take(&mut first), [Tp::new("in", 0)]);
    assert_eq!(take(&mut second), [Tp::new("in", 1)]);
}

/// If this broke, a restart in the same slot would cost the whole group a rebalance, or two members could hold one slot.
#[test]
fn a_static_member_that_comes_back_takes_its_place() {
    let w = world();
    let (mut first, mut second) = (w.source(0), w.source(1));
    take_both(&mut first, &mut second);
    let mut back = w.source(1);
    assert_eq!(take(&mut back), [Tp::new("in", 1)]);
    assert!(!matches!(first.next(), Some(Input::Revoked(_))), "the others see nothing");
    match second.next() {
        Some(Input::Fault(f)) => assert_eq!(f.class, Class::SlotTaken),
        other => panic!("{other:?}"),
    }
}

/// If this broke, a member that stood still past its session would go on as if it owned its partitions.
#[test]
fn a_silent_member_is_expelled_and_told_that_all_is_lost() {
    let w = world();
    let (mut first, mut second) = (w.source(0), w.source(1));
    take_both(&mut first, &mut second);
    let stale = second.stamp().expect("stamped");
    w.advance(10);
    take_any(&mut first);
    w.advance(10);
    take_any(&mut first);
    assert_eq!(w.cluster.admin().expect("made").members(&slot(0).group).expect("listed").len(), 1);
    let lost = match second.next() {
        Some(Input::Lost(lost)) => lost,
        other => panic!("{other:?}"),
    };
    assert_eq!(lost.partitions, [Tp::new("in", 1)]);
    let mut sink = w.sink(1);
    sink.begin().expect("begun");
    assert_eq!(class(sink.offsets(&[(Tp::new("in", 1), NextOffset(5))], &SlotMark::default(), &stale)), Class::Abort);
    assert_eq!(class(sink.commit(LIMIT)), Class::Abort, "only an abort helps");
    sink.abort(LIMIT).expect("aborted");
    sink.begin().expect("and the producer goes on");
    second.released(&lost).expect("released");
    take_both(&mut first, &mut second);
    assert!(second.position(&Tp::new("in", 1)).is_some(), "it is back");
}

/// If this broke, one member that never gives back would stop the whole group for good.
#[test]
fn a_member_that_never_gives_back_is_expelled() {
    let w = world();
    let mut stuck = w.source(0);
    take(&mut stuck);
    let mut second = w.source(1);
    let going = revoked(&mut stuck);
    for _ in 0..7 {
        w.advance(10);
        assert!(stuck.next().is_none());
        take_any(&mut second);
    }
    assert!(second.position(&Tp::new("in", 0)).is_some() && second.position(&Tp::new("in", 1)).is_some());
    stuck.released(&going).expect("released at last");
    take_both(&mut second, &mut stuck);
    assert!(stuck.position(&Tp::new("in", 0)).is_some(), "and joins anew");
}

/// If this broke, a former owner could commit offsets with metadata of an older generation; ownership itself no broker checks.
#[test]
fn offsets_are_checked_by_generation_but_not_by_owner() {
    let w = world();
    let mut first = w.source(0);
    take_any(&mut first);
    let old = first.stamp().expect("stamped");
    let mut second = w.source(1);
    take_both(&mut first, &mut second);
    let fresh = first.stamp().expect("stamped");
    let mut sink = w.sink(0);
    let foreign = [(Tp::new("in", 1), NextOffset(3))];
    sink.begin().expect("begun");
    assert_eq!(class(sink.offsets(&foreign, &SlotMark::default(), &old)), Class::Abort);
    sink.abort(LIMIT).expect("aborted");
    sink.begin().expect("begun");
    sink.offsets(&foreign, &SlotMark("app-000".into()), &fresh).expect("accepted");
    assert_eq!(class(second.committed(&[Tp::new("in", 1)], Isolation::Committed)), Class::Blocked);
    let seen = second.committed(&[Tp::new("in", 1)], Isolation::Uncommitted).expect("answered");
    assert_eq!(seen[0].1, None, "the old position, at once");
    sink.commit(LIMIT).expect("committed");
    let seen = second.committed(&[Tp::new("in", 1)], Isolation::Committed).expect("answered");
    assert_eq!((seen[0].1, seen[0].2.0.as_str()), (Some(NextOffset(3)), "app-000"));
}

/// If this broke, partitions that are added while running would be read by nobody.
#[test]
fn added_partitions_are_assigned() {
    let w = world();
    let mut source = w.source(0);
    take(&mut source);
    w.cluster.add_partitions(&topic("in"), 3);
    let going = revoked(&mut source);
    source.released(&going).expect("released");
    assert_eq!(take(&mut source).len(), 3);
}

/// If this broke, a thread that sleeps would not notice records, or partitions that come.
#[test]
fn readers_are_woken_by_what_concerns_them() {
    let w = world();
    let woken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = woken.clone();
    let wake = Wake::new(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    });
    let mut source = w.cluster.source(&slot(0), &[topic("in")], wake).expect("joins");
    take(&mut source);
    let before = woken.load(std::sync::atomic::Ordering::SeqCst);
    w.publish("out", "k", "not ours");
    assert_eq!(woken.load(std::sync::atomic::Ordering::SeqCst), before);
    w.publish("in", "k", "ours");
    assert!(woken.load(std::sync::atomic::Ordering::SeqCst) > before);
}
