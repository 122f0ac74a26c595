use super::*;
use kube::api::ObjectMeta;

const US: &str = "us";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn held_by(holder: &str, renewed: i64) -> Lease {
    claimed(Lease::default(), holder, &Terms::default(), at(renewed))
}

fn later(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

#[test]
fn a_lease_without_a_holder_is_free() {
    let mut observed = Observed::default();
    let terms = Terms::default();
    for lease in [Lease::default(), vacated(held_by("them", 0))] {
        let standing = observed.standing(&lease, US, &terms, Instant::now());
        assert_eq!(standing, Standing::Free);
    }
}

#[test]
fn anothers_lease_expires_by_our_clock_whatever_theirs_says() {
    let start = Instant::now();
    for theirs in [-1_000_000, 0, 4_000_000_000] {
        let mut observed = Observed::default();
        let lease = held_by("them", theirs);
        let mut standing = |now| observed.standing(&lease, US, &Terms::default(), now);
        let until = later(start, 15);
        assert_eq!(standing(start), Standing::Held { until });
        assert_eq!(standing(later(start, 14)), Standing::Held { until });
        assert_eq!(standing(until), Standing::Free);
    }
}

#[test]
fn any_change_of_the_record_is_a_sign_of_life() {
    let (start, mut observed, terms) = (Instant::now(), Observed::default(), Terms::default());
    observed.standing(&held_by("them", 0), US, &terms, start);
    let now = later(start, 20);
    assert_eq!(
        observed.standing(&held_by("them", 2), US, &terms, now),
        Standing::Held {
            until: later(now, 15)
        },
    );
}

#[test]
fn the_holder_says_how_long_it_is_to_be_waited_for() {
    let start = Instant::now();
    let mut lease = held_by("them", 0);
    let mut until = |seconds| {
        lease.spec.as_mut().unwrap().lease_duration_seconds = seconds;
        Observed::default().standing(&lease, US, &Terms::default(), start)
    };
    assert_eq!(
        until(Some(60)),
        Standing::Held {
            until: later(start, 60)
        }
    );
    assert_eq!(
        until(None),
        Standing::Held {
            until: later(start, 15)
        }
    );
    assert_eq!(
        until(Some(-1)),
        Standing::Held {
            until: later(start, 15)
        }
    );
}

#[test]
fn our_own_lease_is_ours_however_old() {
    let (start, mut observed, terms) = (Instant::now(), Observed::default(), Terms::default());
    for now in [start, later(start, 100)] {
        let standing = observed.standing(&held_by(US, 0), US, &terms, now);
        assert_eq!(standing, Standing::Ours);
    }
}

#[test]
fn taking_a_lease_counts_the_transition_and_renewing_does_not() {
    let taken = claimed(held_by("them", 1), US, &Terms::default(), at(5));
    let renewed = claimed(taken.clone(), US, &Terms::default(), at(7));
    let spec = renewed.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(US));
    assert_eq!(spec.lease_transitions, Some(1));
    assert_eq!(spec.acquire_time, Some(MicroTime(at(5))));
    assert_eq!(spec.renew_time, Some(MicroTime(at(7))));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    assert_eq!(held_by(US, 0).spec.unwrap().lease_transitions, Some(0));
}

#[test]
fn what_is_not_ours_to_write_stays() {
    let mut lease = held_by("them", 1);
    lease.metadata = ObjectMeta {
        resource_version: Some("7".into()),
        labels: Some([("team".to_owned(), "blue".to_owned())].into()),
        ..ObjectMeta::default()
    };
    let spec = lease.spec.as_mut().unwrap();
    spec.preferred_holder = Some("third".into());
    spec.strategy = Some("OldestEmulationVersion".into());
    let before = lease.clone();

    let after = vacated(claimed(lease, US, &Terms::default(), at(5)));
    assert_eq!(after.metadata, before.metadata);
    let (after, before) = (after.spec.unwrap(), before.spec.unwrap());
    assert_eq!(after.preferred_holder, before.preferred_holder);
    assert_eq!(after.strategy, before.strategy);
    assert_eq!(after.holder_identity.as_deref(), Some(""));
}
